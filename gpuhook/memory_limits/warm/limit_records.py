# SPDX-License-Identifier: Apache-2.0
"""The `memory` records of a ledger entry, read and written.

The ledger's docstring has their form. A record without `granted` is the grant itself.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.request.memory_request import BY_DRIVER, BY_KERNEL, NO_LIMIT, MemoryLimit
from gpuhook.vendors.hot.memory_vendors import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class LimitRecord:
    """The ledger's record of a container's memory of one device.

    `limit` is the current limit, `granted` that of the container's creation, None for none. `by` is
    BY_DRIVER, BY_KERNEL or "", `trouble` why it is "". `guarantee` is why the soft limit of the
    grant was left out, "" if it was not.
    """

    __slots__ = ("by", "cgroups", "granted", "guarantee", "limit", "trouble")

    def __init__(
        self, limit: MemoryLimit, granted: MemoryLimit | None, guarantee: str = ""
    ) -> None:
        self.limit = limit
        self.granted = granted
        self.by = vendor_of(limit.device).limited_by
        self.trouble = ""
        self.guarantee = guarantee
        self.cgroups: list[str] = []

    @property
    def is_limited(self) -> bool:
        """Return whether there is a limit: not after a grant was lifted."""
        return is_limited(self.limit)

    @property
    def is_enforced(self) -> bool:
        """Return whether the driver or the kernel enforces it."""
        return self.by in (BY_DRIVER, BY_KERNEL)

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
