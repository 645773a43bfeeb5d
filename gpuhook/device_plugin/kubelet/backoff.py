# SPDX-License-Identifier: Apache-2.0
"""How long to wait before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Delays in seconds that double from `first` to `cap`, each less by chance, by half at most.

    The chance keeps many nodes, or many resources of one, from trying at the same moment.
    """

    __slots__ = ("_cap", "_first", "_next")

    def __init__(self, first: float, cap: float) -> None:
        self._first = self._next = first
        self._cap = cap

    def next(self) -> float:
        """Return the next delay."""
        delay = self._next
        self._next = min(delay * 2, self._cap)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311  # nobody guesses this for gain

    def reset(self) -> None:
        """Begin with the first delay again."""
        self._next = self._first
