# SPDX-License-Identifier: Apache-2.0
"""Many reports of the same thing as few: the first at once, then one with a count per window."""

from __future__ import annotations

from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")


class Storms(Generic[K]):
    """What is reported again and again, by its key. Times are those of a monotonic clock."""

    def __init__(self, seconds: float, limit: int = 4096) -> None:
        self._seconds = seconds
        self._limit = limit
        self._windows: dict[K, tuple[float, int]] = {}

    def is_first(self, key: K, now: float) -> bool:
        """Return whether to tell of `key` at once; else it is counted, for due() to tell.

        Past the limit of keys, a new one is told each time.
        """
        window = self._windows.get(key)
        if window is None:
            if len(self._windows) < self._limit:
                self._windows[key] = (now + self._seconds, 0)
            return True
        end, count = window
        self._windows[key] = (end, count + 1)
        return False

    def due(self, now: float) -> list[tuple[K, int]]:
        """Return what was counted in the windows that are over, and how often."""
        told = []
        for key, (end, count) in list(self._windows.items()):
            if end > now:
                continue
            if count:
                told.append((key, count))
                self._windows[key] = (now + self._seconds, 0)
            else:
                del self._windows[key]
        return told
