# SPDX-License-Identifier: Apache-2.0
"""The names of MIG profiles, "1g.5gb", "1g.5gb+me", "1c.3g.20gb": parser and formatter.

Source: NVIDIA MIG User Guide, "MIG Device Names" and "MIG Profiles".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

_MIB, _GIB = 1024**2, 1024**3
# A profile has eighths of the GPU's memory, including the driver's own part.
_EIGHTHS = 8

_PROFILE = re.compile(
    r"(?:(?P<compute>[0-9]+)c\.)?(?P<gpu>[0-9]+)g\.(?P<memory>[0-9]+)gb"
    r"(?P<attributes>(?:[+-][a-z]+(?:[.,][a-z]+)*)*)"
)


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile's name in parts. `attributes` is the part after the memory: "", "+me", "-me"."""

    compute_slices: int
    gpu_slices: int
    memory_gib: int
    attributes: str = ""

    @property
    def has_graphics(self) -> bool:
        """Whether the profile supports graphics."""
        return "gfx" in re.split(r"[+,.]", self.attributes.partition("-")[0])

    def __str__(self) -> str:
        """Return the name, with compute slices if the instance has fewer than GPU slices."""
        compute = "" if self.compute_slices == self.gpu_slices else f"{self.compute_slices}c."
        return f"{compute}{self.gpu_slices}g.{self.memory_gib}gb{self.attributes}"


def parsed(text: str | None) -> Profile | None:
    """Return the profile in "1g.5gb" or "NVIDIA A100-SXM4-40GB MIG 1g.5gb", else None."""
    match = _PROFILE.fullmatch((text or "").rpartition("MIG ")[2].strip())
    if match is None:
        return None
    slices = int(match["gpu"])
    compute = int(match["compute"]) if match["compute"] else slices
    return Profile(compute, slices, int(match["memory"]), match["attributes"])


def memory_gib(memory_mib: int, total_bytes: int) -> int:
    """Return the size in the name of a profile with `memory_mib` of a GPU's `total_bytes`."""
    eighths = math.ceil(memory_mib * _MIB * _EIGHTHS / total_bytes)
    whole = -(-total_bytes // _GIB)
    return math.floor(eighths * whole / _EIGHTHS + 0.5)
