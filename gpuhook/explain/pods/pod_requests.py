# SPDX-License-Identifier: Apache-2.0
"""The request of one container of a manifest, and the objections of Kubernetes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.explain.pods.pod_answers import Allocated, PodAnswer

# The origin of an objection; the API server and the kubelet are quoted.
API_SERVER, SCHEDULER, KUBELET, PLUGIN = "API server", "scheduler", "kubelet", "device plugin"
# The result of an objection.
REFUSED, PENDING, WARNING = "refused", "pending", "warning"
# The list of the pod that has the container.
CONTAINER, INIT, SIDECAR, EPHEMERAL = "container", "init", "sidecar", "ephemeral"


@dataclass(frozen=True, slots=True)
class Objection:
    """Something in a manifest that does not work, or not as its author may expect.

    `id` is stable ("gpu-under-requests"). `result` is one of REFUSED (the pod or container is not
    created), PENDING (it is never scheduled) and WARNING (it runs). `said` quotes the error message
    if there is one; `instead` is what to write.
    """

    id: str
    by: str
    result: str
    said: str
    instead: str
    where: str  # "pod.yaml:17"


@dataclass(frozen=True, slots=True)
class Resources:
    """Amounts of resources as the manifest has them, "2" or "500m", by name."""

    limits: Mapping[str, str] = field(default_factory=dict)
    requests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeMount:
    """A mount of a container. `source` is the host's path or the kind of volume: "emptyDir"."""

    path: str
    source: str
    is_host: bool = False
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class PodRequest:
    """One container of one pod, as its manifest describes it.

    `env` has the variables with a known value, with $(NAME) replaced as the kubelet does;
    `unknown_env` has the sources of the others: "ConfigMap settings, key gpus". `annotations` are
    the pod's. `gpus` are the requested GPU resources and their numbers.
    """

    pod: str
    namespace: str
    container: str
    where: str  # "pod.yaml:12", where the container begins
    image: str = ""
    kind: str = CONTAINER
    workload: str = ""  # "Deployment/train" for its template, else "Pod/name"
    env: Mapping[str, str] = field(default_factory=dict)
    unknown_env: Mapping[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    gpus: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[str, ...] = ()  # of Dynamic Resource Allocation
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str | None = None
    privileged: bool = False
    capabilities: tuple[str, ...] = ()  # added ones: "SYS_ADMIN"
    host_pid: bool = False
    mounts: tuple[VolumeMount, ...] = ()
    objections: tuple[Objection, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """A display name: "Deployment/train in default, container main (pod.yaml:12)"."""
        kind = "container" if self.kind == CONTAINER else f"{self.kind} container"
        workload = self.workload or f"Pod/{self.pod}"
        return f"{workload} in {self.namespace}, {kind} {self.container} ({self.where})"


def document(asked: PodRequest, allocated: Allocated | None = None) -> dict[str, object]:
    """Return the document of a container: its request, the objections and the allocation.

    `allocation` is null without a node. The objections to the request come first, then those of
    the allocation.
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
            {"devices": list(note.devices), **dict(note.isolation.sentences()), "hint": note.hint}
            for note in one.isolation
        ],
    }
