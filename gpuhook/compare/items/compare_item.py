# SPDX-License-Identifier: Apache-2.0
"""One item of a comparison: a part that the container has, gpuhook would add, or both."""

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
    """A device node, a mount, a variable...: as the container has it, and as gpuhook would add it.

    `there` and `gpuhook` are descriptions, "" if that side does not have the part. `reason` is why
    a difference is harmless, "" if it is not.
    """

    kind: str
    name: str
    verdict: str
    there: str = ""
    gpuhook: str = ""
    reason: str = ""

    @property
    def is_difference(self) -> bool:
        """Whether the sides differ without a known reason."""
        return self.verdict != SAME and not self.reason

    @property
    def is_known(self) -> bool:
        """Whether the sides differ for a known, harmless reason."""
        return self.verdict != SAME and bool(self.reason)

    def document(self) -> dict[str, Any]:
        """Return the item as JSON has it."""
        return {key: getattr(self, key) or None for key in self.__slots__}


def compare_words(kind: str, name: str, there: str, gpuhook: str, reason: str = "") -> Item:
    """Return the item of two descriptions, the same if they are equal."""
    if there == gpuhook:
        return Item(kind, name, SAME, there, gpuhook)
    verdict = DIFFERS if there and gpuhook else THERE if there else GPUHOOK
    return Item(kind, name, verdict, there, gpuhook, reason)


def counts(items: Iterable[Item]) -> dict[str, int]:
    """Return the numbers of equal items, known differences and other differences."""
    held = list(items)
    known = sum(item.is_known for item in held)
    wrong = sum(item.is_difference for item in held)
    return {"same": len(held) - known - wrong, "known": known, "differences": wrong}
