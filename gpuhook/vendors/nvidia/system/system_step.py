# SPDX-License-Identifier: Apache-2.0
"""One thing that a node should have, and what is to be done for it."""

from __future__ import annotations

from dataclasses import dataclass

KEEP, MAKE, REPLACE, REFUSE, SKIP, LOAD = "keep", "make", "replace", "refuse", "skip", "load"
CHANGES = (MAKE, REPLACE, LOAD)


@dataclass(frozen=True, slots=True)
class Step:
    """`action` is a word of these; `what` a path or a module; `says` as what, or why, in words."""

    action: str
    what: str
    says: str
