# SPDX-License-Identifier: Apache-2.0
"""Sharing by MPS, planned: one control daemon per resource, and what it is to be told.

Sources: NVIDIA's documentation of the Multi-Process Service, nvidia-cuda-mps-control(1).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount
from gpuhook.device_plugin.config.configuration import MPS
from gpuhook.device_plugin.offer.offered_devices import most_clients
from gpuhook.errors import fault
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.offer.offered_devices import Resource

# Where a container finds the daemon's pipes, whatever the directory on the host.
CONTAINER_PIPE = "/run/nvidia-mps/pipe"
CONTAINER_SHM = "/dev/shm"  # noqa: S108 # where the client library looks


@dataclass(frozen=True, slots=True)
class MpsPlan:
    """One daemon. `percentage` of the threads and `limits` (MiB by UUID) are those of a client."""

    resource: str
    root: str  # below --mps-root, for this resource alone
    uuids: tuple[str, ...]
    percentage: int
    limits: tuple[tuple[str, int], ...]

    @property
    def pipe(self) -> str:
        """The directory of the daemon's pipes."""
        return os.path.join(self.root, "pipe")

    @property
    def log(self) -> str:
        """The directory of its logs."""
        return os.path.join(self.root, "log")

    @property
    def shm(self) -> str:
        """The directory that its clients share memory in; one for all daemons."""
        return os.path.join(os.path.dirname(self.root), "shm")

    def is_daemon_of(self, other: MpsPlan) -> bool:
        """Return whether one daemon serves both plans, whatever its limits are."""
        return (self.root, self.uuids) == (other.root, other.uuids)

    @property
    def envs(self) -> dict[str, str]:
        """What tells a client where the daemon is, in its container."""
        return {"CUDA_MPS_PIPE_DIRECTORY": CONTAINER_PIPE}

    @property
    def mounts(self) -> tuple[AllocatedMount, ...]:
        """The daemon's pipes and the shared memory, writable: clients make their own in them."""
        return (
            AllocatedMount(CONTAINER_PIPE, self.pipe, read_only=False),
            AllocatedMount(CONTAINER_SHM, self.shm, read_only=False),
        )

    def commands(self) -> tuple[str, ...]:
        """Return what the daemon is told when it has started, a line each."""
        limits = (
            f"set_default_device_pinned_mem_limit {self.uuids.index(uuid)} {mebibytes}M"
            for uuid, mebibytes in self.limits
        )
        return (*limits, f"set_default_active_thread_percentage {self.percentage}")


def plan(resource: Resource, mps_root: str) -> MpsPlan | None:
    """Return the daemon that `resource` needs, None if it is not shared by MPS.

    Ordinals in its commands count the devices that it sees, which are those of the resource.
    Raises GH1870 where the devices have unequal replicas or percentages (a daemon has one for all),
    GH1871 for more clients than a device can serve, GH1872 for MIG.
    """
    if resource.sharing != MPS or not resource.units:
        return None
    if resource.is_mig:
        raise fault("GH1872", resource=resource.name)
    counts = {uuid: len(ids) for uuid, ids in resource.index.ids.items()}
    percentages = {uuid: _percentage(resource, uuid, count) for uuid, count in counts.items()}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {uuid}" for uuid, count in counts.items())
        raise fault("GH1870", resource=resource.name, kind="replicas", values=told)
    if len(set(percentages.values())) > 1:
        told = ", ".join(f"{percentage} % of {uuid}" for uuid, percentage in percentages.items())
        raise fault("GH1870", resource=resource.name, kind="activeThreadPercentage", values=told)
    replicas = next(iter(counts.values()))
    for device in resource.devices:
        most = most_clients(device.compute_capability)
        if most is not None and replicas > most:
            raise fault(
                "GH1871",
                resource=resource.name,
                replicas=replicas,
                model=device.model or device.uuid,
                most=most,
            )
    name = resource.name.rpartition("/")[2]
    return MpsPlan(
        resource=resource.name,
        root=os.path.join(mps_root, name),
        uuids=tuple(counts),
        percentage=next(iter(percentages.values())),
        limits=tuple(
            (uuid, resource.memory[uuid].hard // MIB) for uuid in counts if uuid in resource.memory
        ),
    )


def _percentage(resource: Resource, uuid: str, replicas: int) -> int:
    entry = resource.entries.get(uuid)
    chosen = entry.active_thread_percentage if entry else None
    return chosen or max(1, 100 // replicas)
