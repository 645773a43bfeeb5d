# SPDX-License-Identifier: Apache-2.0
"""A case of the record: its name, the node that it runs on, and what it does there."""

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
    """What `action` does on the node of `scene` (scenes.py).

    `is_altering` says that it changes the node, which is made again for the next case.
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
