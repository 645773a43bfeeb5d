# SPDX-License-Identifier: Apache-2.0
"""Plans sharing by MPS: one control daemon per resource, with its limits.

A daemon outlives its plugin, and its GPUs serve no other process until their compute mode is reset.
So a record of each started daemon lets the next plugin find those that no resource needs any more.

Sources: NVIDIA's documentation of the Multi-Process Service, nvidia-cuda-mps-control(1).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, Allocation
from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.device_plugin.offer.offered_devices import most_clients
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files, state
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.offer.offered_devices import Resource

# The daemon's pipes in a container, for any directory on the host.
CONTAINER_PIPE = "/run/nvidia-mps/pipe"
CONTAINER_SHM = "/dev/shm"  # noqa: S108 # the path in the client library
_RECORD = "gpus"  # a file in the directory of a daemon: one GPU UUID per line
_MAX_SIZE = 1 << 16


@dataclass(frozen=True, slots=True)
class MpsPlan:
    """One daemon. `percentage` (of threads) and `limits` (MiB by UUID) apply to each client."""

    resource: str
    root: str  # below --mps-root, for this resource
    uuids: tuple[str, ...]
    percentage: int
    limits: tuple[tuple[str, int], ...]

    @property
    def pipe(self) -> str:
        return os.path.join(self.root, "pipe")

    @property
    def log(self) -> str:
        return os.path.join(self.root, "log")

    @property
    def shm(self) -> str:
        """The directory of the shared memory of clients; one for all daemons."""
        return os.path.join(os.path.dirname(self.root), "shm")

    def is_daemon_of(self, other: MpsPlan) -> bool:
        """Return whether one daemon serves both plans, apart from its limits."""
        return (self.root, self.uuids) == (other.root, other.uuids)

    @property
    def allocation(self) -> Allocation:
        """The variable and mounts of a client; the mounts are writable: it creates files there."""
        return Allocation(
            envs={"CUDA_MPS_PIPE_DIRECTORY": CONTAINER_PIPE},
            mounts=(
                AllocatedMount(CONTAINER_PIPE, self.pipe, read_only=False),
                AllocatedMount(CONTAINER_SHM, self.shm, read_only=False),
            ),
        )

    def commands(self) -> tuple[str, ...]:
        """Return the commands for a started daemon, one line each."""
        limits = (
            f"set_default_device_pinned_mem_limit {self.uuids.index(uuid)} {mebibytes}M"
            for uuid, mebibytes in self.limits
        )
        return (*limits, f"set_default_active_thread_percentage {self.percentage}")


def plan(resource: Resource, mps_root: str) -> MpsPlan | None:
    """Return the daemon that `resource` needs, None if it is not shared by MPS.

    The ordinals in its commands number the devices of the resource, the only ones that it sees.
    Raises GH1870 if the devices have different replicas or percentages (a daemon has one for all),
    GH1871 for more clients than a device supports, GH1872 for MIG.
    """
    if resource.sharing != MPS or not resource.units:
        return None
    if resource.is_mig:
        raise fault("GH1872", resource=resource.name)
    counts = {uuid: len(ids) for uuid, ids in resource.index.ids.items()}
    percentages = {uuid: _percentage(resource, uuid, count) for uuid, count in counts.items()}
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{count} of {uuid}" for uuid, count in counts.items())
        raise fault("GH1870", resource=resource.name, kind="replicas", values=text)
    if len(set(percentages.values())) > 1:
        text = ", ".join(f"{percentage} % of {uuid}" for uuid, percentage in percentages.items())
        raise fault("GH1870", resource=resource.name, kind="activeThreadPercentage", values=text)
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


def record(plan: MpsPlan) -> None:
    """Record the GPUs of a daemon before its start. Raises OSError."""
    text = "".join(f"{uuid}\n" for uuid in plan.uuids)
    files.replace(os.path.join(plan.root, _RECORD), text.encode(), mode=0o644)


def forget(plan: MpsPlan) -> None:
    """Remove the record, if it exists. Raises OSError."""
    try:
        os.unlink(os.path.join(plan.root, _RECORD))
    except FileNotFoundError:
        return


def orphan_daemons(mps_root: str) -> list[MpsPlan]:
    """Return the daemons that were started and never stopped; their limits are not recorded."""
    try:
        names = sorted(os.listdir(mps_root))
    except OSError:
        return []
    plans = []
    for name in names:
        uuids = _uuids(os.path.join(mps_root, name, _RECORD))
        if uuids:
            plans.append(MpsPlan(name, os.path.join(mps_root, name), uuids, 100, ()))
    return plans


def _uuids(path: str) -> tuple[str, ...]:
    try:
        if not state.usable(os.lstat(path)):
            return ()
        return tuple(files.read(path, _MAX_SIZE).decode("ascii").split())
    except (OSError, ValueError, GpuhookError):
        return ()
