# SPDX-License-Identifier: Apache-2.0
"""What a driver holds a cgroup to.

Loaded with memory_limits.
"""

from __future__ import annotations

from gpuhook.request.memory_request import NO_LIMIT

# A driver may round to its pages; nothing that a person asked for is so small.
_ROUNDING = 2 << 20


class DriverLimit:
    """What the driver holds a cgroup to on one GPU, in bytes, and what it uses now.

    `hard` is NO_LIMIT and `soft` is 0 where nothing is limited. `total` is what the GPU has, None
    where that is not known: a driver may say that instead of NO_LIMIT.
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
        """Return whether these are the limits that were set, as a driver rounds them."""
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
        return f"Held(hard={self.hard}, soft={self.soft}, used={self.used})"

    def _values(self) -> tuple[int, int, int]:
        return self.hard, self.soft, self.used


def _is_about(found: int, asked: int) -> bool:
    if NO_LIMIT in (found, asked):
        return found == asked
    return abs(found - asked) < _ROUNDING
