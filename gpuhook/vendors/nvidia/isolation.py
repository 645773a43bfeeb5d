# SPDX-License-Identifier: Apache-2.0
"""What each way to share an NVIDIA GPU isolates, and what it does not: four questions, answered.

Sources: NVIDIA's documentation of the Multi-Process Service (memory protection, client limits,
error containment), of MIG, and of time slicing in the GPU operator; nvml.h, memory limits.
"""

from __future__ import annotations

from dataclasses import dataclass

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


def of(sharing: str, *, is_mig: bool = False, memory_by: str = BY_NOBODY) -> Isolation:
    """Return the answers for a device that is shared as `sharing` says.

    `memory_by` is who bounds a container's memory; `is_mig`: the device is a MIG instance.
    """
    return Isolation(
        memory=_MEMORY[BY_HARDWARE if sharing == EXCLUSIVE and is_mig else memory_by]
        if sharing != EXCLUSIVE or is_mig
        else "the whole GPU's memory is this container's: nobody else has the device",
        compute=_COMPUTE[sharing],
        stability=_STABILITY[sharing]
        if memory_by == BY_NOBODY or sharing == EXCLUSIVE
        else _STABILITY_LIMITED,
        crash=_CRASH[sharing],
    )


_MEMORY = {
    BY_DRIVER: "bounded by the driver: an allocation above the limit fails, in this container only",
    BY_GUARD: "watched by the device plugin: above the limit it acts after a grace, so a neighbour "
    "may meet an out-of-memory before that",
    BY_MPS: "bounded by the MPS server, for each client process: a container with several has as "
    "many shares",
    BY_HARDWARE: "bounded by the hardware: the instance has memory of its own",
    BY_NOBODY: "not bounded: one container can take all of it, and the others' allocations fail",
}
_COMPUTE = {
    EXCLUSIVE: "not shared",
    TIME_SLICING: "in turns of equal length between the processes that are busy: a container with "
    "two processes has two turns",
    MPS: "side by side, each client with at most its percentage of the threads",
    MEMORY_UNITS: "in turns of equal length between the processes that are busy, whatever their "
    "number of units",
}
_STABILITY = {
    EXCLUSIVE: "it never changes",
    TIME_SLICING: "time: as many turns as there are busy neighbours; memory: what they leave",
    MPS: "threads: at most the percentage, less when neighbours are busy; memory: what they leave",
    MEMORY_UNITS: "time: as many turns as there are busy neighbours; memory: what they leave",
}
_STABILITY_LIMITED = "the limit of memory stays; time changes with the number of busy neighbours"
_CRASH = {
    EXCLUSIVE: "there is no neighbour",
    TIME_SLICING: "nothing, unless the fault needs a reset of the GPU: that ends all of its users",
    MPS: "a fatal fault of one client may end all clients of its server",
    MEMORY_UNITS: "nothing, unless the fault needs a reset of the GPU: that ends all of its users",
}
