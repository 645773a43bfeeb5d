# SPDX-License-Identifier: Apache-2.0
"""The `memory` records of a ledger entry, read and written, and the limits that a driver has.

The ledger's docstring has their form. A record without `granted` is the grant itself.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.request.memory_request import NO_LIMIT, MemoryLimit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DRIVER = "driver"


class LimitRecord:
    """The ledger's record of a container's memory of one device.

    `limit` is the current limit, `granted` that of the container's creation, None for none. `by` is
    DRIVER or "", `trouble` why it is "". `guarantee` is why the soft limit of the grant was left
    out, "" if it was not.
    """

    __slots__ = ("by", "cgroups", "granted", "guarantee", "limit", "trouble")

    def __init__(
        self, limit: MemoryLimit, granted: MemoryLimit | None, guarantee: str = ""
    ) -> None:
        self.limit = limit
        self.granted = granted
        self.by = DRIVER
        self.trouble = ""
        self.guarantee = guarantee
        self.cgroups: list[str] = []

    @property
    def is_limited(self) -> bool:
        """Return whether there is a limit: not after a grant was lifted."""
        return is_limited(self.limit)

    def fail(self, error: Exception | str, cgroups: list[str]) -> None:
        """Record that the driver may not enforce the limit for `cgroups`, because of `error`."""
        code = f"{error.code}: " if isinstance(error, GpuhookError) else ""
        self.by, self.trouble, self.cgroups = "", f"{code}{error}", cgroups

    def document(self) -> dict[str, Any]:
        """Return it as the ledger has it."""
        document = {
            "device": self.limit.device,
            **_values(self.limit),
            "by": self.by,
            "trouble": self.trouble,
        }
        if self.by or self.cgroups:
            document["cgroups"] = self.cgroups
        if self.granted != self.limit:
            document["granted"] = None if self.granted is None else _values(self.granted)
        if self.guarantee:
            document["guarantee"] = self.guarantee
        return document


def is_limited(limit: MemoryLimit | None) -> bool:
    """Return whether a limit limits anything."""
    return limit is not None and (limit.hard != NO_LIMIT or limit.soft > 0)


def records_of(entry: dict[str, Any]) -> dict[str, LimitRecord]:
    """Return the records of an entry by device; values of another form are skipped."""
    listed = entry.get("memory")
    found = map(_record, listed if isinstance(listed, list) else ())
    return {record.limit.device: record for record in found if record is not None}


def enter(entry: dict[str, Any], records: dict[str, LimitRecord | None]) -> None:
    """Put records into an entry by device; None removes a device's record."""
    changed: dict[str, LimitRecord | None] = {**records_of(entry), **records}
    entry["memory"] = [record.document() for record in changed.values() if record is not None]
    if not entry["memory"]:
        del entry["memory"]


def _values(limit: MemoryLimit) -> dict[str, Any]:
    return {"hard": limit.hard, "soft": limit.soft, "asked": limit.is_asked}


def _record(document: object) -> LimitRecord | None:
    device = document.get("device") if isinstance(document, dict) else None
    limit = _limit(device, document) if isinstance(device, str) else None
    if limit is None or not isinstance(document, dict):
        return None
    granted = _limit(limit.device, document["granted"]) if "granted" in document else limit
    record = LimitRecord(limit, granted)
    record.by = str(document.get("by") or "")
    record.trouble = str(document.get("trouble") or "")
    record.guarantee = str(document.get("guarantee") or "")
    cgroups = document.get("cgroups")
    record.cgroups = [str(path) for path in cgroups] if isinstance(cgroups, list) else []
    return record


def _limit(device: str, document: object) -> MemoryLimit | None:
    hard = document.get("hard") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(hard, int):
        return None
    soft = document.get("soft")
    is_asked = document.get("asked") is True
    return MemoryLimit(device, hard, soft if isinstance(soft, int) else 0, is_asked=is_asked)


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
