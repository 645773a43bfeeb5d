# SPDX-License-Identifier: Apache-2.0
"""The isolation of containers on an AMD GPU or partition: memory, compute, stability, crashes.

Sources: the kernel's documentation of the dmem cgroup and of amdgpu's partitions (a memory mode
NPS2 or NPS4 gives groups of partitions their own memory channels); KFD schedules the queues of all
processes in time slices.
"""

from __future__ import annotations

from gpuhook.request.memory_request import BY_KERNEL
from gpuhook.vendors.usage.device_isolation import (
    ALONE,
    BY_GUARD,
    EXCLUSIVE,
    GUARDED,
    LESS_TIME,
    NEVER_CHANGES,
    WHOLE_GPU,
    WHOLE_MEMORY,
    Isolation,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.usage.device_isolation import SharedUse

_BY = {
    BY_KERNEL: "enforced by the kernel's dmem controller: an allocation above it fails, but only "
    "in this container; it is one limit for all partitions of the card, and for VRAM only",
    BY_GUARD: GUARDED,
}
_UNLIMITED = (
    "not limited: one container can use all of it, and the allocations of others fail; a memory "
    "limit is a hard cap where the kernel has the dmem controller (Linux 6.15)"
)
_OWN_CHANNELS = ("nps2", "nps4", "nps8")


def isolation_of(use: SharedUse) -> Isolation:
    """Return the isolation of a GPU or partition, of a profile such as CPX/NPS4 or cpx_nps4."""
    is_alone = use.sharing == EXCLUSIVE
    return Isolation(
        memory=_memory(use, is_alone=is_alone),
        compute=_compute(use, is_alone=is_alone),
        stability=NEVER_CHANGES
        if is_alone
        else f"{LESS_TIME}; memory: the free rest, up to a limit",
        crash=_crash(use, is_alone=is_alone),
    )


def _memory(use: SharedUse, *, is_alone: bool) -> str:
    if use.limit:
        why = f" ({use.unenforced})" if use.unenforced else ""
        by = _BY.get(use.memory_by, f"which is not enforced{why}")
        return f"limited to {use.limit}, {by}"
    if not is_alone:
        return _UNLIMITED
    if not use.is_part:
        return WHOLE_MEMORY
    if use.profile.lower().endswith(_OWN_CHANNELS):
        return "the partition has its own part of the memory, on its own channels"
    return "the partition has its part of the memory; in NPS1, all partitions share the channels"


def _compute(use: SharedUse, *, is_alone: bool) -> str:
    if not is_alone:
        return (
            "in time slices for the queues of the busy processes; HSA_CU_MASK limits a program "
            "that respects it"
        )
    if use.is_part:
        return "the partition has its own compute units for this container"
    return WHOLE_GPU


def _crash(use: SharedUse, *, is_alone: bool) -> str:
    if use.is_part:
        return "a fault that resets the GPU ends the programs on all of its partitions"
    if is_alone:
        return ALONE
    return (
        "mostly none, each process has its own address space; a fault that resets the GPU ends all "
        "of its users"
    )
