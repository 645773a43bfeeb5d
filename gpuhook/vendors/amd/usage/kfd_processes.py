# SPDX-License-Identifier: Apache-2.0
"""The compute processes of KFD, and the used memory of its nodes.

Source: drivers/gpu/drm/amd/amdkfd/kfd_process.c and kfd_topology.c. A process has a directory under
/sys/class/kfd/kfd/proc, named by its pid on the host, with the files vram_<gpu_id> (bytes) and
stats_<gpu_id>/cu_occupancy (compute units) of each GPU or partition, also of those that it does not
use. A further context of the process has the same files in a directory context_<n> below. The
directory remains until the memory of the process is free.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_KFD = "/sys/class/kfd/kfd"
_CONTEXT = "context_"
_MAX_BYTES = 65536  # of a file of sysfs, whose size is a page
_MAX_ENTRIES = 65536  # processes, and contexts of one


@dataclass(frozen=True, slots=True)
class KfdUse:
    """The use of one device by a process; None if the kernel does not report it."""

    vram_bytes: int | None = None
    occupied_cus: int | None = None


def number(path: str) -> int | None:
    """Return the unsigned number in a file of sysfs, None if the kernel does not report it.

    A GPU in a reset refuses reads with EPERM or EBUSY.
    """
    try:
        text = files.read(path, _MAX_BYTES).strip()
    except (OSError, GpuhookError):
        return None
    return int(text) if text.isdigit() else None


def kfd_uses(host_root: str, kfd_ids: Collection[int]) -> dict[int, dict[int, KfdUse]]:
    """Return pid -> gpu_id -> use, of the processes that have memory or compute units of a GPU."""
    directory = f"{host_root.rstrip('/')}{_KFD}/proc"
    found = {}
    for name in _names(directory):
        if name.isascii() and name.isdecimal():
            uses = _process_uses(f"{directory}/{name}", kfd_ids)
            if uses:
                found[int(name)] = uses
    return found


def _process_uses(directory: str, kfd_ids: Collection[int]) -> dict[int, KfdUse]:
    contexts = [name for name in _names(directory) if name.startswith(_CONTEXT)]
    places = [directory, *(f"{directory}/{name}" for name in contexts)]
    uses = {}
    for kfd_id in kfd_ids:
        files_ = [f"{place}/vram_{kfd_id}" for place in places]
        amounts = [number(path) for path in files_ if os.path.exists(path)]
        known = [amount for amount in amounts if amount is not None]
        occupied = [number(f"{place}/stats_{kfd_id}/cu_occupancy") for place in places]
        cus = [count for count in occupied if count is not None]
        if any(known) or any(cus) or len(known) < len(amounts):
            # Of a sum, a part that is not known makes the whole unknown.
            vram = sum(known) if len(known) == len(amounts) else None
            uses[kfd_id] = KfdUse(vram, sum(cus) if cus else None)
    return uses


def node_used_bytes(host_root: str) -> dict[int, int]:
    """Return gpu_id -> used memory of the KFD nodes that report it: those of AMD's own driver."""
    directory = f"{host_root.rstrip('/')}{_KFD}/topology/nodes"
    found = {}
    for name in _names(directory):
        used = number(f"{directory}/{name}/mem_banks/0/used_memory")
        kfd_id = None if used is None else number(f"{directory}/{name}/gpu_id")
        if used is not None and kfd_id:
            found[kfd_id] = used
    return found


def _names(directory: str) -> list[str]:
    """Return the names in a directory, [] if it is gone or cannot be read."""
    try:
        return sorted(os.listdir(directory))[:_MAX_ENTRIES]
    except OSError:
        return []
