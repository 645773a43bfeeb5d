# SPDX-License-Identifier: Apache-2.0
"""The isolation of each way to share an NVIDIA GPU: memory, compute, stability, crashes.

Sources: NVIDIA's documentation of the Multi-Process Service (from Volta on, each client has its own
address space, a memory limit per client, error containment), of MIG (isolation of memory and faults
in hardware), of time slicing in the GPU operator ("no memory or fault-isolation between replicas"),
of compute preemption (from Pascal on); nvml.h, memory limits.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.request.memory_request import BY_DRIVER
from gpuhook.vendors.usage.device_isolation import (
    ALONE,
    BY_GUARD,
    BY_HARDWARE,
    BY_MPS,
    BY_NOBODY,
    EXCLUSIVE,
    GUARDED,
    LESS_TIME,
    MEMORY_UNITS,
    MPS,
    NEVER_CHANGES,
    TIME_SLICING,
    WHOLE_GPU,
    WHOLE_MEMORY,
    Isolation,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.usage.device_isolation import SharedUse


def isolation_of(use: SharedUse) -> Isolation:
    """Return the isolation of a GPU or MIG instance."""
    by = use.memory_by
    if use.sharing == EXCLUSIVE:
        alone = _INSTANCE if use.is_part else _WHOLE
        # An exclusive GPU may have a limit, too.
        if not use.limit:
            return replace(alone, memory=_MEMORY[by]) if by == BY_DRIVER else alone
        otherwise = _UNENFORCED_ALONE if by == BY_NOBODY else _MEMORY[by]
        return replace(alone, memory=_limited(use, otherwise))
    kept = _OVERSUBSCRIBED if use.is_oversubscribed and by != BY_NOBODY else _KEPT[by]
    memory = _MEMORY[by]
    if use.limit:
        memory = _limited(use, _UNENFORCED if by == BY_NOBODY else memory)
    return Isolation(
        memory=memory,
        compute=_COMPUTE[use.sharing],
        stability=f"{_TIME[use.sharing]}; {kept}",
        crash=_CRASH[use.sharing] + (_WITHIN if use.is_part else ""),
    )


def _limited(use: SharedUse, enforcement: str) -> str:
    """Return the sentence on limited memory: the amount, and what enforces it or why not."""
    if use.memory_by != BY_NOBODY:
        return f"limited to {use.limit}, {enforcement}"
    why = f" ({use.unenforced})" if use.unenforced else ""
    return f"limited to {use.limit}, which is not enforced{why}: {enforcement}"


_UNENFORCED = "one container can use all of it, and the allocations of others fail"
_UNENFORCED_ALONE = "the container can use all of the device's memory"
_WHOLE = Isolation(memory=WHOLE_MEMORY, compute=WHOLE_GPU, stability=NEVER_CHANGES, crash=ALONE)
_INSTANCE = Isolation(
    memory="enforced by the hardware: the instance has its own memory",
    compute="the instance has its own multiprocessors and caches",
    stability=NEVER_CHANGES,
    crash="none: faults are confined to their instance, except those of the whole GPU",
)
_MEMORY = {
    BY_DRIVER: "enforced by the driver, once the runtime has set the limit: an allocation above "
    "it fails, but only in this container",
    BY_GUARD: GUARDED,
    BY_MPS: "enforced by the MPS server, for each client process: a container with two processes "
    "has twice the limit",
    BY_HARDWARE: "enforced by the hardware: the instance has its own memory",
    BY_NOBODY: "not limited: one container can use all of it, and the allocations of others fail",
}
_COMPUTE = {
    TIME_SLICING: "in equal time slices for the busy processes: a container with "
    "two busy processes gets two slices",
    MPS: "at the same time, each client process on at most its percentage of the threads; memory "
    "bandwidth and caches are not divided",
    MEMORY_UNITS: "in equal time slices for the busy processes, regardless of "
    "their number of units",
}
_TIME = {
    **dict.fromkeys((TIME_SLICING, MEMORY_UNITS), LESS_TIME),
    MPS: "threads: at most the percentage, less if other containers are busy",
}
_KEPT = {
    BY_DRIVER: "memory: the limit does not change, and the guaranteed part is available",
    BY_GUARD: (
        "memory: the limit does not change, but a container above its own limit may have taken it"
    ),
    BY_MPS: (
        "memory: the limit does not change, and is available unless others have several processes"
    ),
    BY_HARDWARE: "memory: it never changes",
    BY_NOBODY: "memory: the free rest",
}
_OVERSUBSCRIBED = (
    "memory: the limits add up to more than the GPU has, so others may have used up a fair share"
)
_OWN_CONTEXT = (
    "mostly none, each process has its own context; a fault that requires a GPU reset terminates "
    "all of its users"
)
_CRASH = {
    **dict.fromkeys((TIME_SLICING, MEMORY_UNITS), _OWN_CONTEXT),
    MPS: (
        "a fatal fault of one client terminates all clients on the GPU, and new clients wait until "
        "they have exited"
    ),
}
_WITHIN = "; other instances continue, except for faults of the whole GPU"
