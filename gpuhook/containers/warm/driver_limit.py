# SPDX-License-Identifier: Apache-2.0
"""A limit of memory as a vendor's driver or the kernel has it."""

from __future__ import annotations

from gpuhook.request.memory_request import NO_LIMIT

# How limits are enforced; memory_limits/warm/memory_backend.py describes both.
DMEM, MISC = "dmem", "misc"
# A driver may round to its pages; no requested limit is so small.
_ROUNDING = 2 << 20


class DriverLimit:
    """A cgroup's limit in the driver on one GPU, in bytes, and its current memory.

    `hard` is NO_LIMIT and `soft` is 0 without a limit. `total` is the GPU's memory, None if it is
    unknown: a driver may report that in place of NO_LIMIT.
    """

    __slots__ = ("hard", "soft", "total", "used")

    def __init__(self, hard: int, soft: int, used: int, total: int | None = None) -> None:
        self.hard = hard
        self.soft = soft
        self.used = used
        self.total = total

    @property
    def is_limited(self) -> bool:
        """Return whether there is a limit of either kind."""
        return not self._has_all or self.soft > 0

    def holds(self, hard: int, soft: int) -> bool:
        """Return whether these are the limits that were set, up to a driver's rounding."""
        is_held = _is_about(self.hard, hard) or (hard == NO_LIMIT and self._has_all)
        return is_held and _is_about(self.soft, soft)

    @property
    def _has_all(self) -> bool:
        return self.hard == NO_LIMIT or (self.total is not None and self.hard >= self.total)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DriverLimit) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"DriverLimit(hard={self.hard}, soft={self.soft}, used={self.used})"

    def _values(self) -> tuple[int, int, int]:
        return self.hard, self.soft, self.used


def _is_about(found: int, asked: int) -> bool:
    if NO_LIMIT in (found, asked):
        return found == asked
    return abs(found - asked) < _ROUNDING


def limit_words(hard: int, soft: int) -> str:
    """Return limits in words, in bytes."""
    limit = "no hard limit" if hard == NO_LIMIT else f"hard limit {hard}"
    return f"{limit} and soft limit {soft} bytes"
