# SPDX-License-Identifier: Apache-2.0
"""Whether a container that NRI announces may have the GPUs that it requests.

NRI announces every container of the node, so a variable of an image must not request GPUs by
itself. Accepted are:

1. what the kubelet assigned: annotations of the container, mounts (request.acceptVolumeMounts), and
   variables that a device plugin set, by the kubelet's checkpoint;
2. variables of the image or the pod in a namespace of nri.namespaces or with a handler of
   nri.runtimeClasses, under the settings of request/policy.py;
3. annotations of the pod, by policy/pod_annotations.py.

The first of them that names devices applies.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.entry.plan_context import log_warnings
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot.settings import FAIL, NONE
from gpuhook.nri.policy import pod_annotations
from gpuhook.nri.policy.kubelet_grants import KubeletGrants
from gpuhook.request import parse, plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.entry.plan_context import PlanContext, VendorContext
    from gpuhook.host.hot.settings import Settings
    from gpuhook.nri.wire.nri_messages import NriContainer, PodSandbox

    Requests = list[tuple[VendorContext, parse.Source]]

# A CreateContainerRequest without one of these, and without those of the wrapper, is not read.
MARKS = tuple(prefix.encode() for prefix in pod_annotations.prefixes())
_VOID = "void"
_PRIVILEGED = {"bounding": ["CAP_SYS_ADMIN"]}


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Where the kubelet's assignments are; the node's settings have the rest of the policy."""

    kubelet: KubeletGrants = field(default_factory=KubeletGrants)

    def restrict(
        self, spec: dict[str, Any], pod: PodSandbox, container: NriContainer, context: PlanContext
    ) -> None:
        """Edit the requests in `spec`, the container's part of a config.json: plans read the rest.

        Variables that are refused become `void`: NRI cannot remove one, and another runtime or hook
        of the node may read it. A permitted annotation of the pod becomes one of the container.
        Logs refused requests. Raises GH1026 instead if the settings say so, GH2710 if the kubelet's
        checkpoint is needed and cannot be read, GH2711 and GH2712 for an invalid annotation, GH1004
        and GH1005 for a malformed list.
        """
        settings, requested = context.settings, _by_variables(spec, context)
        if requested and not _may_choose(pod, settings):
            assigned = self._assigned(requested, pod, container, context)
            _restrict_variables(spec, requested, assigned, pod, context)
        if _has_nodes(spec, context):
            _drop_annotations(spec, settings)  # the runtime has applied their CDI names itself
        elif not any(
            plan.verdict(spec, settings, one.node).chosen is not None for one in context.every()
        ):
            _take_annotation(spec, pod, container, context)

    def _assigned(
        self, requested: Requests, pod: PodSandbox, container: NriContainer, context: PlanContext
    ) -> dict[str, str]:
        """Return the variables of device plugins; raises GH2710 if a named device depends on it."""
        try:
            return self.kubelet.variables(pod.uid, container.name)
        except GpuhookError as error:
            if any(source.is_grant for _, source in requested):
                raise
            log_warnings([error], context.log)
            return {}


def _by_variables(spec: dict[str, Any], context: PlanContext) -> Requests:
    """Return the requests in variables of the image, the pod or a device plugin, by vendor."""
    bare = {"process": {"env": parse.variables(spec), "capabilities": _PRIVILEGED}}
    verdicts = ((one, plan.verdict(bare, one.settings, one.node)) for one in context.every())
    return [(one, found.chosen) for one, found in verdicts if found.chosen is not None]


def _may_choose(pod: PodSandbox, settings: Settings) -> bool:
    """Return whether an image or a pod may request devices by variables."""
    handler, classes = pod.runtime_handler, settings.nri_runtime_classes
    is_listed = pod_annotations.is_listed(pod.namespace, settings.nri_namespaces)
    return is_listed or (bool(handler) and handler in classes)


def _restrict_variables(
    spec: dict[str, Any],
    requested: Requests,
    assigned: dict[str, str],
    pod: PodSandbox,
    context: PlanContext,
) -> None:
    """Give each variable of a request the value that a device plugin set, else `void`."""
    env, granted = parse.variables(spec), False
    for one, source in requested:
        devices_env = one.node.vocabulary.devices_env
        present = {entry.partition("=")[0] for entry in env}
        own = {devices_env, *present.intersection(one.settings.swarm_resources)}
        values = {name: assigned.get(name, _VOID) for name in sorted(own)}
        env = [entry for entry in env if entry.partition("=")[0] not in own]
        env += [f"{name}={value}" for name, value in values.items()]
        if own.isdisjoint(assigned):
            where = f"the namespace {pod.namespace} is not in nri.namespaces"
            _refuse(source, f"no device plugin set it, and {where}", context)
        else:
            granted = True
    spec["process"]["env"] = env
    if granted:  # not the choice of an image or a pod
        spec["process"]["capabilities"] = _PRIVILEGED


def _has_nodes(spec: dict[str, Any], context: PlanContext) -> bool:
    return any(one.node.has_nodes(spec) for one in context.every())


def _drop_annotations(spec: dict[str, Any], settings: Settings) -> None:
    starts = tuple(settings.annotation_prefixes)
    for key in [key for key in spec["annotations"] if key.startswith(starts)]:
        del spec["annotations"][key]


def _take_annotation(
    spec: dict[str, Any], pod: PodSandbox, container: NriContainer, context: PlanContext
) -> None:
    """Make a permitted request of the pod's annotations an annotation of the container."""
    source = pod_annotations.annotation_source(pod.annotations, container.name)
    if source is None:
        return
    settings = context.settings
    reason = pod_annotations.objection(source, pod.namespace, settings)
    if settings.accept_annotations == NONE or not settings.annotation_prefixes:
        reason = "the settings accept no annotations"
    if reason:
        _refuse(source, reason, context)
        return
    spec["annotations"][settings.annotation_prefixes[0] + source.where] = ",".join(source.names)


def _refuse(source: parse.Source, reason: str, context: PlanContext) -> None:
    """Log GH1007, or raise GH1026 if the settings say so."""
    shown = ", ".join(source.names[:8])
    if context.settings.on_refusal == FAIL:
        raise fault("GH1026", names=shown, where=source.where, reason=reason)
    log_warnings([fault("GH1007", names=shown, where=source.where, reason=reason)], context.log)
