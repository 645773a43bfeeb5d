# SPDX-License-Identifier: Apache-2.0
"""A case of the record: its name, its node, and its action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.record.box import Box

EXPECTED = Path(__file__).parent / "expected"


@dataclass(frozen=True)
class Case:
    """`action` on the node of `scene` (scenes.py).

    If `is_altering`, it changes the node, which is made again for the next case.
    """

    group: str
    name: str
    scene: str
    action: Callable[[Box], None]
    is_altering: bool = False

    @property
    def path(self) -> str:
        """Return GROUP/NAME."""
        return f"{self.group}/{self.name}"

    @property
    def expected(self) -> Path:
        """Return the file with the recorded text."""
        return EXPECTED / f"{self.path}.txt"
