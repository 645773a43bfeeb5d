# SPDX-License-Identifier: Apache-2.0
"""The use of a device by containers, and the isolation of these: the questions and the answers."""

from __future__ import annotations

from dataclasses import dataclass

# The sharing of a device, and what limits the memory of its containers.
EXCLUSIVE, TIME_SLICING, MPS, MEMORY_UNITS = "none", "time-slicing", "mps", "memory-units"
BY_GUARD, BY_MPS, BY_HARDWARE, BY_NOBODY = "guard", "mps", "hardware", "nobody"
# Sentences for the devices of every vendor.
GUARDED = (
    "monitored by the device plugin: it acts on a container above the limit, after a grace period; "
    "other containers may run out of memory before that"
)
WHOLE_MEMORY = "this container has the GPU's entire memory: no other container gets the GPU"
WHOLE_GPU = "the whole GPU computes for this container"
NEVER_CHANGES = "it never changes"
LESS_TIME = "time: less with more busy containers"
ALONE = "no other container is on the GPU"


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


@dataclass(frozen=True, slots=True)
class SharedUse:
    """The use of a device by a container: `sharing`, and what limits the memory, `memory_by`.

    `is_part`: the device is a MIG instance or a partition, and `profile` its kind, "" if unknown.
    `is_oversubscribed`: the limits add up to more than the device has. `limit` is the container's
    limit as a text, "3776Mi a replica", "" for none, and `unenforced` is why it is not enforced.
    """

    sharing: str
    memory_by: str = BY_NOBODY
    is_part: bool = False
    profile: str = ""
    is_oversubscribed: bool = False
    limit: str = ""
    unenforced: str = ""
