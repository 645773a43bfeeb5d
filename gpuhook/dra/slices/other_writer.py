# SPDX-License-Identifier: Apache-2.0
"""Notices another program that publishes the same driver's slices of this node.

It may be a vendor's own driver, which has the same name. Two that write in turn would load the API
server for as long as both run, and no pool would be complete.
"""

from __future__ import annotations

import time

_MOST = 5  # changes in a row that are undone
_ROW = 120.0  # seconds after which a change is not in a row with the last one


class OtherWriter:
    """Counts the rounds that undo changes of another program."""

    def __init__(self) -> None:
        self._count = 0
        self._last = 0.0

    @property
    def is_active(self) -> bool:
        """Whether another program has changed the slices again and again."""
        return self._count >= _MOST

    def note(self) -> None:
        """Count a round that undoes a change."""
        now = time.monotonic()
        self._count = self._count + 1 if now - self._last < _ROW else 1
        self._last = now
