# SPDX-License-Identifier: Apache-2.0
"""The request of one container of a manifest, and its allocation by the device plugin."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.explain.pods.constraints import Constraints
from gpuhook.request.replicas import SEPARATOR
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.offer.sharing_notes import SharingNote
    from gpuhook.explain.pods.scheduling.placement import Placement
    from gpuhook.explain.pods.scheduling.scheduling_node import SchedulingNode
    from gpuhook.request.memory_request import MemoryLimit

CDI_PREFIX = "cdi.k8s.io/"  # of annotations with CDI devices
# The origin of an objection; the API server and the kubelet are quoted.
API_SERVER, SCHEDULER, KUBELET, PLUGIN = "API server", "scheduler", "kubelet", "device plugin"
ENGINE = "engine"
NO_HANDLER = "no-handler"  # the id of an objection
# The result of an objection.
REFUSED, PENDING, WARNING = "refused", "pending", "warning"
# The list of the pod that has the container.
CONTAINER, INIT, SIDECAR, EPHEMERAL = "container", "init", "sidecar", "ephemeral"


@dataclass(frozen=True, slots=True)
class Objection:
    """Something in a manifest that does not work, or not as its author may expect.

    `id` is stable ("gpu-under-requests"). `result` is one of REFUSED (the pod or container is not
    created), PENDING (it is not scheduled) and WARNING (it runs). `said` quotes the error message
    if there is one; `instead` is what to write.
    """

    id: str
    by: str
    result: str
    said: str
    instead: str
    where: str  # "pod.yaml:17"


def kubelet_warning(identifier: str, said: str, instead: str, where: str) -> Objection:
    """Return the objection to something that runs, but not as its author may expect."""
    return Objection(identifier, KUBELET, WARNING, said, instead, where)


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
    limits: Mapping[str, str] = field(default_factory=dict)  # as written: "2" or "500m", by name
    requests: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)
    claims: tuple[str, ...] = ()  # of Dynamic Resource Allocation
    claim_requests: tuple[tuple[str, str], ...] = ()  # (claim, request), "" for all requests
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_class: str | None = None
    runtime_class_where: str = ""
    handler: str | None = None  # of a RuntimeClass in the same manifest
    constraints: Constraints = field(default_factory=Constraints)
    nodes: tuple[SchedulingNode, ...] = ()  # of the same manifest
    privileged: bool = False
    capabilities: tuple[str, ...] = ()  # added ones: "SYS_ADMIN"
    host_pid: bool = False
    mounts: tuple[VolumeMount, ...] = ()
    objections: tuple[Objection, ...] = ()
    notes: tuple[str, ...] = ()
    position: int = 0  # of the pod in its manifest: pods with a generateName may have equal names

    @property
    def title(self) -> str:
        """A display name: "Deployment/train in default, container main (pod.yaml:12)"."""
        kind = "container" if self.kind == CONTAINER else f"{self.kind} container"
        workload = self.workload or f"Pod/{self.pod}"
        return f"{workload} in {self.namespace}, {kind} {self.container} ({self.where})"


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """The units of one resource for a container, and the isolation of their devices.

    `taken` are the units that the pod has got up to this container, of the `offered` healthy ones.
    """

    resource: str
    sharing: str  # as of offer.devices.Resource
    units: tuple[str, ...]  # "GPU-...::3"
    devices: tuple[Device, ...]
    isolation: tuple[SharingNote, ...]
    allocation: Allocation
    taken: int
    offered: int
    limits: tuple[MemoryLimit, ...] = ()  # that the runtime sets

    @property
    def is_complete(self) -> bool:
        """Whether the plugin itself adds the devices, and the driver if it has files."""
        given = self.allocation
        needs_files = any(vendor_of_resource(one.domain).traces.HAS_FILES for one in self.devices)
        return bool(given.devices) and (given.has_files or not needs_files)

    @property
    def is_direct(self) -> bool:
        """Whether the container gets the devices without the runtime: from plugin or engine."""
        return self.is_complete or bool(cdi_names(self.allocation))


def cdi_names(given: Allocation) -> tuple[str, ...]:
    """Return the qualified names of the CDI devices that the engine adds for an allocation."""
    named = dict.fromkeys(given.cdi_devices)
    for key, value in given.annotations.items():
        if key.startswith(CDI_PREFIX):
            named |= dict.fromkeys(value.split(","))
    return tuple(named)


@dataclass(frozen=True, slots=True)
class Allocated:
    """The allocation of the device plugin to one container, and the objections."""

    answers: tuple[PodAnswer, ...] = ()
    allocation: Allocation = field(default_factory=Allocation)
    objections: tuple[Objection, ...] = ()
    warnings: tuple[str, ...] = ()  # of the plugin's configuration on this node

    @property
    def units(self) -> tuple[str, ...]:
        """The units of all resources."""
        return tuple(unit for answer in self.answers for unit in answer.units)

    @property
    def replicas(self) -> list[str]:
        """The units that are replicas, "<uuid>::<number>"."""
        return [unit for unit in self.units if SEPARATOR in unit]

    @property
    def devices(self) -> frozenset[str]:
        """The UUIDs of the GPUs and instances."""
        return frozenset(device.uuid for answer in self.answers for device in answer.devices)

    @property
    def cdi_devices(self) -> tuple[str, ...]:
        """The qualified names of the CDI devices that the engine adds to the container."""
        return cdi_names(self.allocation)

    @property
    def is_complete(self) -> bool:
        """Whether the plugin itself adds the devices of a resource, and the driver's files."""
        return any(answer.is_complete for answer in self.answers)

    @property
    def domains(self) -> dict[str, str]:
        """The domain of the vendor of each device, by UUID."""
        return {one.uuid: one.domain for answer in self.answers for one in answer.devices}

    @property
    def direct_devices(self) -> list[str]:
        """The UUIDs of the devices that the container gets without the runtime."""
        direct = (answer for answer in self.answers if answer.is_direct)
        return sorted({device.uuid for answer in direct for device in answer.devices})


@dataclass(frozen=True, slots=True)
class ClaimedDevices:
    """The UUIDs of the devices that a container gets by claims.

    No other container gets the `exclusive` ones. `limits` are the memory that its claims consume.
    `objections` are why there are no devices.
    """

    uuids: tuple[str, ...] = ()
    exclusive: frozenset[str] = frozenset()
    limits: tuple[MemoryLimit, ...] = ()
    objections: tuple[Objection, ...] = ()


def document(
    asked: PodRequest,
    allocated: Allocated | None = None,
    placement: Placement | None = None,
    of_claims: tuple[Objection, ...] = (),
) -> dict[str, object]:
    """Return the document of a container: its request, the objections and the allocation.

    `allocation` is null without a node, `scheduling` without a comparison with one. The objections
    to the request come first, then those of the placement and of the allocation.
    """
    objections = (
        *asked.objections,
        *(placement.objections if placement else ()),
        *(allocated.objections if allocated else ()),
        *of_claims,
    )
    return {
        "pod": asked.pod,
        "namespace": asked.namespace,
        "workload": asked.workload,
        "container": asked.container,
        "kind": asked.kind,
        "where": asked.where,
        "image": asked.image,
        "runtime_class": asked.runtime_class,
        "handler": asked.handler,
        "gpus": dict(asked.gpus),
        "limits": dict(asked.limits),
        "requests": dict(asked.requests),
        "claims": list(asked.claims),
        "env": dict(asked.env),
        "env_from_elsewhere": dict(asked.unknown_env),
        "annotations": dict(asked.annotations),
        "privileged": asked.privileged,
        "host_pid": asked.host_pid,
        "capabilities": list(asked.capabilities),
        "mounts": [asdict(mount) for mount in asked.mounts],
        "objections": [asdict(one) for one in objections],
        "notes": [*asked.notes, *(allocated.warnings if allocated else ())],
        "scheduling": placement.document() if placement else None,
        "allocation": _allocation(allocated) if allocated else None,
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
