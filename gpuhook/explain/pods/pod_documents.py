# SPDX-License-Identifier: Apache-2.0
"""What was found of a container of a pod, as a document: the same for JSON and YAML."""

from __future__ import annotations

from dataclasses import asdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.explain.pods.pod_answers import Allocated, PodAnswer
    from gpuhook.explain.pods.pod_requests import Objection, PodRequest


def document(asked: PodRequest, allocated: Allocated | None = None) -> dict[str, object]:
    """Return what a container asks for, the objections, and what it would be given.

    `allocation` is null where nobody has asked what a node would give. Objections are those of
    both, in that order.
    """
    objections = (*asked.objections, *(allocated.objections if allocated else ()))
    return {
        "pod": asked.pod,
        "namespace": asked.namespace,
        "workload": asked.workload,
        "container": asked.container,
        "kind": asked.kind,
        "where": asked.where,
        "image": asked.image,
        "runtime_class": asked.runtime_class,
        "gpus": dict(asked.gpus),
        "limits": dict(asked.resources.limits),
        "requests": dict(asked.resources.requests),
        "claims": list(asked.claims),
        "env": dict(asked.env),
        "env_from_elsewhere": dict(asked.unknown_env),
        "annotations": dict(asked.annotations),
        "privileged": asked.privileged,
        "host_pid": asked.host_pid,
        "capabilities": list(asked.capabilities),
        "mounts": [asdict(mount) for mount in asked.mounts],
        "objections": [_objection(one) for one in objections],
        "notes": [*asked.notes, *(allocated.warnings if allocated else ())],
        "allocation": _allocation(allocated) if allocated else None,
    }


def _objection(one: Objection) -> dict[str, str]:
    return {
        "id": one.id,
        "by": one.by,
        "result": one.result,
        "said": one.said,
        "instead": one.instead,
        "where": one.where,
    }


def _allocation(allocated: Allocated) -> dict[str, object]:
    given = allocated.allocation
    return {
        "resources": [_answer(one) for one in allocated.answers],
        "env": dict(given.envs),
        "mounts": [
            {"path": one.container_path, "source": one.host_path, "read_only": one.read_only}
            for one in given.mounts
        ],
        "devices": [
            {"path": one.container_path, "source": one.host_path, "permissions": one.permissions}
            for one in given.devices
        ],
        "annotations": dict(given.annotations),
        "cdi_devices": list(given.cdi_devices),
    }


def _answer(one: PodAnswer) -> dict[str, object]:
    return {
        "resource": one.resource,
        "sharing": one.sharing,
        "units": list(one.units),
        "devices": [
            {"uuid": device.uuid, "index": device.index, "model": device.model}
            for device in one.devices
        ],
        "isolation": [
            {"devices": list(told.devices), **dict(told.isolation.sentences()), "hint": told.hint}
            for told in one.told
        ],
    }
