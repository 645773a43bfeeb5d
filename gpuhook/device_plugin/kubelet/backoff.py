# SPDX-License-Identifier: Apache-2.0
"""The delay before the next try."""

from __future__ import annotations

import random


class Backoff:
    """Delays in seconds that double from `first` to `cap`, each reduced at random by up to half.

    The randomness keeps many nodes, or many resources of a node, from trying at the same moment.
    """

    __slots__ = ("_cap", "_first", "_next")

    def __init__(self, first: float, cap: float) -> None:
        self._first = self._next = first
        self._cap = cap

    def next(self) -> float:
        delay = self._next
        self._next = min(delay * 2, self._cap)
        return delay * random.uniform(0.5, 1.0)  # noqa: S311  # no secret depends on it

    def reset(self) -> None:
        """Start with the first delay again."""
        self._next = self._first
