# SPDX-License-Identifier: Apache-2.0
"""Limits repeated reports: the first one passes, then one with a count per time window."""

from __future__ import annotations

from typing import Generic, TypeVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

K = TypeVar("K", bound="Hashable")


class RateLimit(Generic[K]):
    """Counts reports by key. Times are those of a monotonic clock."""

    def __init__(self, seconds: float, limit: int = 4096) -> None:
        self._seconds = seconds
        self._limit = limit
        self._windows: dict[K, tuple[float, int]] = {}

    def is_first(self, key: K, now: float) -> bool:
        """Return whether to report `key` now; else it is counted, and due() returns the count.

        Beyond the limit of keys, new ones are reported each time.
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
        """Return the keys counted in windows that have ended, with their counts."""
        reports = []
        for key, (end, count) in list(self._windows.items()):
            if end > now:
                continue
            if count:
                reports.append((key, count))
                self._windows[key] = (now + self._seconds, 0)
            else:
                del self._windows[key]
        return reports
