# SPDX-License-Identifier: Apache-2.0
"""Whether a container that NRI announces may have the GPUs that it requests.

NRI announces every container of the node, so a variable of an image must not request GPUs by
itself. Accepted are:

1. what the kubelet assigned: annotations of the container, and the variables, mounts (with
   request.acceptVolumeMounts) and CDI names of a device plugin, by the kubelet's checkpoint;
2. variables of the image or the pod in a namespace of nri.namespaces or with a handler of
   nri.runtimeClasses, under the settings of request/policy.py;
3. annotations of the pod, by policy/pod_annotations.py.

The first of them that names devices applies. CRI-O shows a container the annotations of its pod as
well: those are not the kubelet's.
"""

from __future__ import annotations

import copy
import os
from dataclasses import dataclass, field

from gpuhook.entry.plan_context import log_warnings
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot.settings import FAIL, NONE
from gpuhook.nri.policy import pod_annotations
from gpuhook.nri.policy.kubelet_grants import KubeletGrants
from gpuhook.request import annotation_origin, parse, plan, policy

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
        _restrict_annotations(spec, pod, context)
        requested, may_choose = _by_variables(spec, context), _may_choose(pod, context.settings)
        if context.settings.accept_volume_mounts and not may_choose:
            self._restrict_mounts(spec, pod, container, context)
        if requested and not may_choose:
            assigned = self._assigned(requested, pod, container, context)
            _restrict_variables(spec, requested, assigned, pod, context)
        if not _has_devices(spec, context) and not _requests(spec, context):
            self._take_cdi_devices(spec, pod, container, context)
        if not _has_devices(spec, context) and not _requests(spec, context):
            _take_annotation(spec, pod, container, context)
        extras = {name for one in context.every() for name in one.node.vocabulary.extras}
        extras.intersection_update(parse.environment(spec))
        if extras and not may_choose and _requests(spec, context):
            assigned = self._assigned([], pod, container, context)
            _restrict_extras(spec, extras, assigned, pod, context)

    def _take_cdi_devices(
        self, spec: dict[str, Any], pod: PodSandbox, container: NriContainer, context: PlanContext
    ) -> None:
        """Make an annotation of the CDI names of device plugins that the runtime has dropped."""
        prefixes = context.settings.annotation_prefixes
        try:
            found = self.kubelet.cdi_devices(pod.uid, container.name)
        except GpuhookError:
            return  # nothing names a device
        names = [name for name in found if pod_annotations.is_gpu(name)]
        if names and prefixes and not _is_applied(spec, context):
            spec["annotations"][f"{prefixes[0]}kubelet"] = ",".join(names)

    def _restrict_mounts(
        self, spec: dict[str, Any], pod: PodSandbox, container: NriContainer, context: PlanContext
    ) -> None:
        """Leave out the mounts that request devices and that no device plugin set; raises GH2710.

        A pod may mount /dev/null of the host there by a volume.
        """
        prefixes = [one.node.vocabulary.mount_prefix for one in context.every()]
        starts = tuple(f"{prefix}/" for prefix in prefixes if prefix)
        asked = {os.path.normpath(one["destination"]) for one in spec["mounts"]}
        asked = {path for path in asked if path.startswith(starts)}
        others = asked and asked - self.kubelet.mounts(pod.uid, container.name)
        for path in sorted(others):
            source = parse.Source(parse.MOUNTS, f"mount {path}", [os.path.basename(path)])
            _refuse(source, _unlisted(pod), context)
        spec["mounts"] = [
            one for one in spec["mounts"] if os.path.normpath(one["destination"]) not in others
        ]

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
            _refuse(source, _unlisted(pod), context)
        else:
            granted = True
    spec["process"]["env"] = env
    if granted:  # not the choice of an image or a pod
        accepted = copy.copy(context.settings)
        accepted.accept_env_when_unprivileged = True
        for one in context.every():
            one.settings = accepted


def _restrict_extras(
    spec: dict[str, Any],
    extras: set[str],
    assigned: dict[str, str],
    pod: PodSandbox,
    context: PlanContext,
) -> None:
    """Give each variable of other devices the value that a device plugin set, or leave it out."""
    entries = [one for one in parse.variables(spec) if one.partition("=")[0] not in extras]
    for name in sorted(extras):
        if name in assigned:
            entries.append(f"{name}={assigned[name]}")
        else:
            source = parse.Source(parse.ENV, f"variable {name}", [parse.environment(spec)[name]])
            _refuse(source, _unlisted(pod), context)
    spec["process"]["env"] = entries


def _unlisted(pod: PodSandbox) -> str:
    return f"no device plugin set it, and the namespace {pod.namespace} is not in nri.namespaces"


def _requests(spec: dict[str, Any], context: PlanContext) -> bool:
    verdicts = (plan.verdict(spec, one.settings, one.node) for one in context.every())
    return any(one.chosen is not None for one in verdicts)


def _has_devices(spec: dict[str, Any], context: PlanContext) -> bool:
    """Return whether the kubelet gave a container devices; a privileged one has all of the host."""
    return not policy.privileged(spec) and _has_nodes(spec, context)


def _has_nodes(spec: dict[str, Any], context: PlanContext) -> bool:
    return any(one.node.has_nodes(spec) for one in context.every())


def _is_applied(spec: dict[str, Any], context: PlanContext) -> bool:
    """Return whether the runtime has applied CDI names of GPUs.

    Nodes alone do not prove that: a device plugin may pass them beside the names.
    """
    return bool(spec.get("hooks")) and _has_nodes(spec, context)


def _restrict_annotations(spec: dict[str, Any], pod: PodSandbox, context: PlanContext) -> None:
    """Keep the kubelet's annotations, unless the runtime has applied their CDI names itself."""
    notes, starts = spec["annotations"], tuple(context.settings.annotation_prefixes)
    keys = [key for key in notes if key.startswith(starts)]
    origins = annotation_origin.origins(notes, keys)
    for key in keys:
        if origins[key] == annotation_origin.BY_POD or pod.annotations.get(key) == notes[key]:
            source = parse.Source(parse.POD_ANNOTATIONS, f"annotation {key}", [notes.pop(key)])
            _refuse(source, f"the pod wrote it; pods use {pod_annotations.PREFIX}", context)
        elif _is_applied(spec, context):
            del notes[key]
    notes.pop(annotation_origin.CRIO, None)  # what is left is a grant


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
