# SPDX-License-Identifier: Apache-2.0
"""One thing that a container has, would have, or both: the unit in which sides are compared."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

SAME, THERE, GPUHOOK, DIFFERS = "same", "only-there", "only-gpuhook", "differs"

REQUEST, NODE, ACCESS, MOUNT = "request", "node", "access", "mount"
LIBRARY, LINK, VARIABLE, GROUP, MASK, PROFILE = (
    "library", "link", "variable", "group", "mask", "profile",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """A device node, a mount, a variable...: what is there of it, and what gpuhook would give.

    `there` and `gpuhook` are words for people, "" where that side has nothing. `reason` says why
    the sides need not be alike; a difference without one is counted.
    """

    kind: str
    name: str
    verdict: str
    there: str = ""
    gpuhook: str = ""
    reason: str = ""

    @property
    def is_difference(self) -> bool:
        """Whether the sides differ, and nobody knows that this does no harm."""
        return self.verdict != SAME and not self.reason

    @property
    def is_known(self) -> bool:
        """Whether the sides differ in a way that does no harm."""
        return self.verdict != SAME and bool(self.reason)

    def document(self) -> dict[str, Any]:
        """Return the item as JSON has it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "verdict": self.verdict,
            "there": self.there or None,
            "gpuhook": self.gpuhook or None,
            "reason": self.reason or None,
        }


def compare_words(kind: str, name: str, there: str, gpuhook: str, reason: str = "") -> Item:
    """Return the item of two sides that are words: alike if the words are."""
    if there == gpuhook:
        return Item(kind, name, SAME, there, gpuhook)
    verdict = DIFFERS if there and gpuhook else THERE if there else GPUHOOK
    return Item(kind, name, verdict, there, gpuhook, reason)


def counts(items: Iterable[Item]) -> dict[str, int]:
    """Return how many items are the same, differ in a known way, and differ."""
    held = list(items)
    known = sum(item.is_known for item in held)
    wrong = sum(item.is_difference for item in held)
    return {"same": len(held) - known - wrong, "known": known, "differences": wrong}
