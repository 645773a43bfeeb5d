# SPDX-License-Identifier: Apache-2.0
"""The isolation of each way to share an NVIDIA GPU: memory, compute, stability, crashes.

Sources: NVIDIA's documentation of the Multi-Process Service (from Volta on, each client has its own
address space, a memory limit per client, error containment), of MIG (isolation of memory and faults
in hardware), of time slicing in the GPU operator ("no memory or fault-isolation between replicas"),
of compute preemption (from Pascal on); nvml.h, memory limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpuhook.request.memory_request import BY_DRIVER, BY_KERNEL

# The sharing of a device, and what limits the memory of its containers.
EXCLUSIVE, TIME_SLICING, MPS, MEMORY_UNITS = "none", "time-slicing", "mps", "memory-units"
BY_GUARD, BY_MPS, BY_HARDWARE, BY_NOBODY = "guard", "mps", "hardware", "nobody"


@dataclass(frozen=True, slots=True)
class Isolation:
    """The isolation of one way to share, a sentence for each question."""

    memory: str  # is memory limited, and by what
    compute: str  # is compute shared fairly
    stability: str  # does a container's share change when others start and stop
    crash: str  # the effect of another container's crash

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
    is_partition: bool = False,
    memory_by: str = BY_NOBODY,
    is_oversubscribed: bool = False,
    limit: str = "",
    unheld: str = "",
) -> Isolation:
    """Return the isolation of a device with the sharing `sharing`.

    `memory_by` limits a container's memory; `is_mig`: the device is a MIG instance,
    `is_partition`: a partition of another vendor's GPU;
    `is_oversubscribed`: the limits add up to more than the device has; `limit` is a container's
    limit as a text, "3776Mi a replica", "" for none, and `unheld` is why the driver does not
    enforce it.
    """
    if sharing == EXCLUSIVE:
        alone = _INSTANCE if is_mig else _WHOLE
        alone = _PARTITION if is_partition else alone
        # An exclusive GPU may have a limit, too.
        if not limit:
            is_limited = memory_by in (BY_DRIVER, BY_KERNEL)
            return replace(alone, memory=_MEMORY[memory_by]) if is_limited else alone
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


def _limited(limit: str, memory_by: str, enforcement: str, unheld: str) -> str:
    """Return the sentence on limited memory: the amount, and what enforces it or why not."""
    if memory_by != BY_NOBODY:
        return f"limited to {limit}, {enforcement}"
    why = f" ({unheld})" if unheld else ""
    return f"limited to {limit}, which is not enforced{why}: {enforcement}"


_UNHELD = "one container can use all of it, and the allocations of others fail"
_UNHELD_ALONE = "the container can use all of the device's memory"
_WHOLE = Isolation(
    memory="this container has the GPU's entire memory: no other container gets the GPU",
    compute="the whole GPU computes for this container",
    stability="it never changes",
    crash="no other container is on the GPU",
)
_INSTANCE = Isolation(
    memory="enforced by the hardware: the instance has its own memory",
    compute="the instance has its own multiprocessors and caches",
    stability="it never changes",
    crash="none: faults are confined to their instance, except those of the whole GPU",
)
_PARTITION = Isolation(
    memory="the driver divides the GPU's memory equally; with NPS2 and more, the partition has its "
    "own memory",
    compute="the partition has its own compute units",
    stability="it never changes while the partition mode remains",
    crash="mostly none; a reset of the GPU terminates the programs on all of its partitions",
)
_MEMORY = {
    BY_DRIVER: "enforced by the driver, once the runtime has set the limit: an allocation above "
    "it fails, but only in this container",
    BY_KERNEL: "enforced by the kernel's controller dmem, once the runtime has set the limit: an "
    "allocation above it fails, but only in this container",
    BY_GUARD: "monitored by the device plugin: it acts on a container above the limit, after a "
    "grace period; other containers may run out of memory before that",
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
    **dict.fromkeys((TIME_SLICING, MEMORY_UNITS), "time: less with more busy containers"),
    MPS: "threads: at most the percentage, less if other containers are busy",
}
_KEPT = {
    BY_DRIVER: "memory: the limit does not change, and the guaranteed part is available",
    BY_KERNEL: "memory: the limit does not change",
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
