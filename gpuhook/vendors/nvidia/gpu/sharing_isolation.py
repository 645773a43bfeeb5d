# SPDX-License-Identifier: Apache-2.0
"""What each way to share an NVIDIA GPU isolates, and what it does not: four questions, answered.

Sources: NVIDIA's documentation of the Multi-Process Service (from Volta on each client has an
address space of its own, a limit of memory for each client, error containment), of MIG (isolation
of memory and faults in hardware), of time slicing in the GPU operator ("no memory or
fault-isolation between replicas"), of compute preemption (from Pascal on); nvml.h, memory limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

# How a device is shared, and who bounds the memory of those who share it.
EXCLUSIVE, TIME_SLICING, MPS, MEMORY_UNITS = "none", "time-slicing", "mps", "memory-units"
BY_DRIVER, BY_GUARD, BY_MPS, BY_HARDWARE, BY_NOBODY = "driver", "guard", "mps", "hardware", "nobody"


@dataclass(frozen=True, slots=True)
class Isolation:
    """The answers for one way to share, a sentence each."""

    memory: str  # is memory bounded, and by whom
    compute: str  # is compute shared fairly
    stability: str  # does my share change when others come and go
    crash: str  # what happens to me when a neighbour crashes

    def sentences(self) -> tuple[tuple[str, str], ...]:
        """Return (question, answer) of all four."""
        return (
            ("memory", self.memory),
            ("compute", self.compute),
            ("stability", self.stability),
            ("crash", self.crash),
        )


def isolation_of(
    sharing: str,
    *,
    is_mig: bool = False,
    memory_by: str = BY_NOBODY,
    is_oversubscribed: bool = False,
    limit: str = "",
    unheld: str = "",
) -> Isolation:
    """Return the answers for a device that is shared as `sharing` says.

    `memory_by` is who bounds a container's memory; `is_mig`: the device is a MIG instance;
    `is_oversubscribed`: the limits add up to more than the device has; `limit` is what one may have
    in words, "3776Mi a replica", "" for no limit, and `unheld` why the driver does not hold that.
    """
    if sharing == EXCLUSIVE:
        alone = _INSTANCE if is_mig else _WHOLE
        # A limit on a GPU that nobody else has holds all the same: somebody has set it.
        if not limit:
            is_limited = memory_by == BY_DRIVER
            return replace(alone, memory=_MEMORY[BY_DRIVER]) if is_limited else alone
        otherwise = _UNHELD_ALONE if memory_by == BY_NOBODY else _MEMORY[memory_by]
        return replace(alone, memory=_limited(limit, memory_by, otherwise, unheld))
    kept = _KEPT[memory_by]
    if is_oversubscribed and memory_by != BY_NOBODY:
        kept = _OVERSUBSCRIBED
    memory = _MEMORY[memory_by]
    if limit:
        otherwise = _UNHELD if memory_by == BY_NOBODY else memory
        memory = _limited(limit, memory_by, otherwise, unheld)
    return Isolation(
        memory=memory,
        compute=_COMPUTE[sharing],
        stability=f"{_TIME[sharing]}; {kept}",
        crash=_CRASH[sharing] + (_WITHIN if is_mig else ""),
    )


def _limited(limit: str, memory_by: str, held: str, unheld: str) -> str:
    """Return the sentence on memory of who has a limit: the amount, who holds it, or why nobody."""
    if memory_by != BY_NOBODY:
        return f"limited to {limit}, {held}"
    why = f" ({unheld})" if unheld else ""
    return f"limited to {limit}, which nobody holds{why}: {held}"


_UNHELD = "one container can take all of it, and the others' allocations fail"
_UNHELD_ALONE = "the container can take all of the device's memory"
_WHOLE = Isolation(
    memory="the whole GPU's memory is this container's: nobody else is given the GPU",
    compute="the whole GPU computes for this container",
    stability="it never changes",
    crash="there is no neighbour on the GPU",
)
_INSTANCE = Isolation(
    memory="bounded by the hardware: the instance has memory of its own",
    compute="the instance has multiprocessors and caches of its own",
    stability="it never changes",
    crash="nothing: its faults stay in its instance, but for those of the whole GPU",
)
_MEMORY = {
    BY_DRIVER: "bounded by the driver, once the runtime has set the limit: an allocation above it "
    "fails, in this container only",
    BY_GUARD: "watched by the device plugin: it acts on who is above the limit, after a grace; a "
    "neighbour may run out of memory before that",
    BY_MPS: "bounded by the MPS server, for each client process: a container with two processes "
    "has twice the limit",
    BY_HARDWARE: "bounded by the hardware: the instance has memory of its own",
    BY_NOBODY: "not bounded: one container can take all of it, and the others' allocations fail",
}
_COMPUTE = {
    TIME_SLICING: "in turns of equal length between the processes that are busy: a container with "
    "two busy processes has two turns",
    MPS: "at the same time, each client process on at most its percentage of the threads; memory "
    "bandwidth and caches are not divided",
    MEMORY_UNITS: "in turns of equal length between the processes that are busy, whatever their "
    "number of units",
}
_TIME = {
    TIME_SLICING: "time: the more neighbours are busy, the less",
    MPS: "threads: at most the percentage, less where neighbours are busy",
    MEMORY_UNITS: "time: the more neighbours are busy, the less",
}
_KEPT = {
    BY_DRIVER: "memory: the limit stays, and what is guaranteed of it is free",
    BY_GUARD: "memory: the limit stays, but a neighbour above its own may have taken it",
    BY_MPS: "memory: the limit stays, and is free unless neighbours have several processes",
    BY_HARDWARE: "memory: it never changes",
    BY_NOBODY: "memory: what the others leave",
}
_OVERSUBSCRIBED = (
    "memory: the limits add up to more than there is, so neighbours may have taken a fair share"
)
_CRASH = {
    TIME_SLICING: "mostly nothing, each process has a context of its own; a fault that needs a "
    "reset of the GPU ends all of its users",
    MPS: "a fatal fault of one client ends all clients on the GPU, and new ones wait until those "
    "are gone",
    MEMORY_UNITS: "mostly nothing, each process has a context of its own; a fault that needs a "
    "reset of the GPU ends all of its users",
}
_WITHIN = "; other instances go on, but for faults of the whole GPU"
