# SPDX-License-Identifier: Apache-2.0
"""The compute processes of KFD, and the used memory of its nodes.

Source: drivers/gpu/drm/amd/amdkfd/kfd_process.c and kfd_topology.c. A process has a directory under
/sys/class/kfd/kfd/proc, named by its pid on the host, with the files vram_<gpu_id> (bytes) and
stats_<gpu_id>/cu_occupancy (compute units) of each GPU or partition, also of those that it does not
use, and queues/<id>/gpuid of its queues. A further context of the process has the same files in a
directory context_<n> below. The directory remains until the memory of the process is free.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.vendors.amd.hot import amd_sysfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_PROCESSES = "/sys/class/kfd/kfd/proc"
_CONTEXT = "context_"


@dataclass(frozen=True, slots=True)
class KfdUse:
    """The use of one device by a process; None if the kernel does not report it."""

    vram_bytes: int | None = None
    occupied_cus: int | None = None

    def with_other(self, other: KfdUse) -> KfdUse:
        """Return the sum with the use by another context; a part that is unknown makes it so."""
        return KfdUse(
            whole_sum(self.vram_bytes, other.vram_bytes),
            whole_sum(self.occupied_cus, other.occupied_cus),
        )


def whole_sum(one: int | None, other: int | None) -> int | None:
    """Return the sum of two numbers, None if one of them is unknown."""
    return None if one is None or other is None else one + other


def kfd_uses(host_root: str, kfd_ids: Collection[int]) -> dict[int, dict[int, KfdUse]]:
    """Return pid -> gpu_id -> use, of the processes that have memory of a GPU or a queue on it."""
    directory = f"{host_root.rstrip('/')}{_PROCESSES}"
    found = {}
    for name in amd_sysfs.names(directory):
        if amd_sysfs.is_number(name):
            uses = _process_uses(f"{directory}/{name}", kfd_ids)
            if uses:
                found[int(name)] = uses
    return found


def _process_uses(directory: str, kfd_ids: Collection[int]) -> dict[int, KfdUse]:
    names = amd_sysfs.names(directory)
    contexts = [f"{directory}/{name}" for name in names if name.startswith(_CONTEXT)]
    found: dict[int, KfdUse] = {}
    for place in (directory, *contexts):
        for kfd_id, use in _context_uses(place, kfd_ids):
            before = found.get(kfd_id)
            found[kfd_id] = use if before is None else before.with_other(use)
    return found


def _context_uses(place: str, kfd_ids: Collection[int]) -> Iterator[tuple[int, KfdUse]]:
    """Yield the devices on which a context has memory or a queue.

    Only of these the compute units are read, which the kernel counts on the device.
    """
    names = set(amd_sysfs.names(place))
    queues = amd_sysfs.names(f"{place}/queues") if "queues" in names else ()
    with_queue = {amd_sysfs.number(f"{place}/queues/{name}/gpuid") for name in queues}
    for kfd_id in kfd_ids:
        has_file = f"vram_{kfd_id}" in names
        vram = amd_sysfs.number(f"{place}/vram_{kfd_id}") if has_file else 0
        if vram == 0 and kfd_id not in with_queue:
            continue
        has_units = f"stats_{kfd_id}" in names
        yield (
            kfd_id,
            KfdUse(
                vram,
                amd_sysfs.number(f"{place}/stats_{kfd_id}/cu_occupancy") if has_units else None,
            ),
        )


def node_used_bytes(host_root: str) -> dict[int, int]:
    """Return gpu_id -> used memory of the KFD nodes that report it: those of AMD's own driver."""
    directory = f"{host_root.rstrip('/')}{amd_sysfs.TOPOLOGY}/nodes"
    found = {}
    for name in amd_sysfs.names(directory):
        used = amd_sysfs.number(f"{directory}/{name}/mem_banks/0/used_memory")
        kfd_id = None if used is None else amd_sysfs.number(f"{directory}/{name}/gpu_id")
        if used is not None and kfd_id:
            found[kfd_id] = used
    return found
