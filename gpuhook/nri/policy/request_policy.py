# SPDX-License-Identifier: Apache-2.0
"""Whether a container that NRI announces may have the GPUs that it requests.

NRI announces every container of the node, so a variable of an image must not request GPUs by
itself. Accepted are:

1. what the kubelet assigned: annotations of the container, mounts (request.acceptVolumeMounts), and
   variables that a device plugin set, by the kubelet's checkpoint;
2. variables of the image or the pod in a namespace of nri.namespaces or with a handler of
   nri.runtimeClasses, under the settings of request/policy.py;
3. annotations of the pod, by pod_annotations.py.

The first of them that names devices applies.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.entry.plan_context import log_warnings
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot.settings import FAIL, NONE
from gpuhook.nri.policy import pod_annotations
from gpuhook.request import parse, plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuhook.entry.plan_context import PlanContext, VendorContext
    from gpuhook.host.hot.settings import Settings
    from gpuhook.nri.policy.kubelet_grants import KubeletGrants

_PRIVILEGED = {"bounding": ["CAP_SYS_ADMIN"]}


@dataclass(frozen=True, slots=True)
class Requester:
    """A container that is created: its pod, and its name in the pod.

    `annotations` are the pod's own, `handler` is that of its RuntimeClass.
    """

    namespace: str
    pod_uid: str
    container: str
    handler: str
    annotations: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PermittedSpec:
    """What a container announces, without the requests that policy refuses; plans are made of it.

    `void` are the variables to set to `void` in the container: NRI cannot remove one, and another
    runtime or hook of the node may read it.
    """

    spec: dict[str, Any]
    void: tuple[str, ...]


def permitted_spec(
    spec: dict[str, Any], requester: Requester, context: PlanContext, kubelet: KubeletGrants
) -> PermittedSpec:
    """Return the spec of a container with the requests that the node's policy accepts.

    `spec` has what NRI announces: process.env, mounts, linux.devices, and the annotations of the
    container. Logs refused requests. Raises GH1026 instead if the settings say so, GH2660 if the
    kubelet's checkpoint is needed and cannot be read, GH2661 and GH2662 for an invalid annotation,
    GH1004 and GH1005 for a malformed list.
    """
    judged, void = _with_permitted_variables(spec, requester, context, kubelet)
    judged = _without_applied(judged, context)
    if not _is_assigned(judged, context):
        source = _permitted_annotation(requester, context)
        if source is not None:
            judged = _with_annotation(judged, source, context.settings)
    return PermittedSpec(judged, tuple(void))


def _with_permitted_variables(
    spec: dict[str, Any], requester: Requester, context: PlanContext, kubelet: KubeletGrants
) -> tuple[dict[str, Any], list[str]]:
    """Return a spec whose variables request only what they may, and the variables to set to `void`.

    A variable that a device plugin set has the value of the device plugin.
    """
    settings, requested = context.settings, _requested(spec, context)
    if not requested or _may_choose(requester, settings):
        return spec, []
    assigned = _assigned(requested, requester, context, kubelet)
    env, void = parse.variables(spec), []
    for one, source in requested:
        own = [*_variables(one, settings), one.node.vocabulary.image_version_env]
        granted = [f"{name}={assigned[name]}" for name in own if name in assigned]
        env = [*(entry for entry in env if entry.partition("=")[0] not in own), *granted]
        if not granted:
            where = f"the namespace {requester.namespace} is not in nri.namespaces"
            _refuse(source, f"no device plugin set it, and {where}", context)
            void.append(one.node.vocabulary.devices_env)
    process = {**spec["process"], "env": env}
    if len(void) < len(requested):
        process["capabilities"] = _PRIVILEGED  # a grant, not the choice of an image or a pod
    return {**spec, "process": process}, void


def _requested(
    spec: dict[str, Any], context: PlanContext
) -> list[tuple[VendorContext, parse.Source]]:
    """Return the requests in variables of the image, the pod or a device plugin, by vendor."""
    bare = {"process": {"env": parse.variables(spec), "capabilities": _PRIVILEGED}}
    verdicts = ((one, plan.verdict(bare, one.settings, one.node)) for one in context.every())
    return [(one, found.chosen) for one, found in verdicts if found.chosen is not None]


def _variables(one: VendorContext, settings: Settings) -> list[str]:
    return [one.node.vocabulary.devices_env, *settings.swarm_resources]


def _may_choose(requester: Requester, settings: Settings) -> bool:
    """Return whether an image or a pod may request devices by variables."""
    classes = settings.nri_runtime_classes
    return pod_annotations.is_listed(requester.namespace, settings.nri_namespaces) or (
        bool(requester.handler) and requester.handler in classes
    )


def _assigned(
    requested: list[tuple[VendorContext, parse.Source]],
    requester: Requester,
    context: PlanContext,
    kubelet: KubeletGrants,
) -> dict[str, str]:
    """Return the variables of device plugins. Raises GH2660 if a named device depends on them."""
    try:
        return kubelet.variables(requester.pod_uid, requester.container)
    except GpuhookError as error:
        if any(source.is_grant for _, source in requested):
            raise
        log_warnings([error], context.log)
        return {}


def _without_applied(spec: dict[str, Any], context: PlanContext) -> dict[str, Any]:
    """Return a spec without the annotations whose CDI names the runtime has applied itself."""
    annotations, starts = spec.get("annotations") or {}, tuple(context.settings.annotation_prefixes)
    if not any(key.startswith(starts) for key in annotations) or not _has_nodes(spec, context):
        return spec
    kept = {key: text for key, text in annotations.items() if not key.startswith(starts)}
    return {**spec, "annotations": kept}


def _is_assigned(spec: dict[str, Any], context: PlanContext) -> bool:
    """Return whether a container has devices, or a request that takes precedence."""
    return _has_nodes(spec, context) or any(
        plan.verdict(spec, one.settings, one.node).chosen is not None for one in context.every()
    )


def _has_nodes(spec: dict[str, Any], context: PlanContext) -> bool:
    return any(one.node.has_nodes(spec) for one in context.every())


def _permitted_annotation(requester: Requester, context: PlanContext) -> parse.Source | None:
    """Return the request of the pod's annotations, None if there is none that applies."""
    source = pod_annotations.annotation_source(requester.annotations, requester.container)
    if source is None:
        return None
    settings = context.settings
    reason = pod_annotations.objection(source, requester.namespace, settings)
    if settings.accept_annotations == NONE or not settings.annotation_prefixes:
        reason = "the settings accept no annotations"
    if not reason:
        return source
    _refuse(source, reason, context)
    return None


def _with_annotation(
    spec: dict[str, Any], source: parse.Source, settings: Settings
) -> dict[str, Any]:
    """Return a spec with a request as an annotation of the container, which is a grant."""
    key = f"{settings.annotation_prefixes[0]}{source.where}"
    annotations = {**(spec.get("annotations") or {}), key: ",".join(source.names)}
    return {**spec, "annotations": annotations}


def _refuse(source: parse.Source, reason: str, context: PlanContext) -> None:
    """Log GH1007, or raise GH1026 if the settings say so."""
    shown = ", ".join(source.names[:8])
    if context.settings.on_refusal == FAIL:
        raise fault("GH1026", names=shown, where=source.where, reason=reason)
    log_warnings([fault("GH1007", names=shown, where=source.where, reason=reason)], context.log)
