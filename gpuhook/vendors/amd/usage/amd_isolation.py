# SPDX-License-Identifier: Apache-2.0
"""The isolation of containers on an AMD GPU or partition: memory, compute, stability, crashes.

Sources: the kernel's documentation of the dmem cgroup and of amdgpu's partitions (a memory mode
NPS2 or NPS4 gives groups of partitions their own memory channels); KFD schedules the queues of all
processes in time slices.
"""

from __future__ import annotations

EXCLUSIVE, BY_KERNEL, BY_GUARD = "none", "kernel", "guard"  # of a container's sharing and limit
_DMEM = "enforced by the kernel's dmem controller: an allocation above it fails, but only in this "
_DMEM += "container; it is one limit for all partitions of the card, and for VRAM only"
_UNLIMITED = "not limited: one container can use all of it, and the allocations of others fail; a "
_UNLIMITED += "memory limit is a hard cap where the kernel has the dmem controller (Linux 6.15)"
_WATCHED = "monitored by the device plugin: it acts on a container above the limit, after a grace "
_WATCHED += "period; other containers may run out of memory before that"
_OWN_CHANNELS = ("NPS2", "NPS4", "NPS8")


def isolation(profile: str, sharing: str, memory_by: str, limit: str) -> dict[str, str]:
    """Return the sentences; `profile` is the mode of a partition, "CPX/NPS4", "" for a GPU.

    `limit` is the limit of the memory as a text, "" for none, and `memory_by` what enforces it.
    """
    is_alone = sharing == EXCLUSIVE
    return {
        "memory": _memory(profile, memory_by, limit, is_alone=is_alone),
        "compute": _compute(profile, is_alone=is_alone),
        "stability": "it never changes"
        if is_alone
        else "time: less with more busy containers; memory: the free rest, up to a limit",
        "crash": _crash(profile, is_alone=is_alone),
    }


def _memory(profile: str, memory_by: str, limit: str, *, is_alone: bool) -> str:
    if limit:
        by = {BY_KERNEL: _DMEM, BY_GUARD: _WATCHED}.get(memory_by)
        return f"limited to {limit}, {by}" if by else f"limited to {limit}, which is not enforced"
    if not is_alone:
        return _UNLIMITED
    if not profile:
        return "this container has the GPU's entire memory: no other container gets the GPU"
    if profile.partition("/")[2] in _OWN_CHANNELS:
        return "the partition has its own part of the memory, on its own channels"
    return "the partition has its part of the memory; in NPS1, all partitions share the channels"


def _compute(profile: str, *, is_alone: bool) -> str:
    if not is_alone:
        return (
            "in time slices for the queues of the busy processes; HSA_CU_MASK limits a program "
            "that respects it"
        )
    what = "the partition has its own compute units" if profile else "the whole GPU computes"
    return f"{what} for this container"


def _crash(profile: str, *, is_alone: bool) -> str:
    if profile:
        return "a fault that resets the GPU ends the programs on all of its partitions"
    if is_alone:
        return "no other container is on the GPU"
    return (
        "mostly none, each process has its own address space; a fault that resets the GPU ends all "
        "of its users"
    )
