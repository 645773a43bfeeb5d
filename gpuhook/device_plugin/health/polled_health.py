# SPDX-License-Identifier: Apache-2.0
"""The health of devices whose driver reports no events: it is read at intervals.

Pure. A device is unhealthy as long as its check finds a fault, and becomes healthy by itself. A
counter of errors that has risen is a fault until it is back at its first value, as after a reset of
the GPU, or until forget(). The first value of a counter is no fault: these errors are older.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.vendors.plugin.vendor_part import DeviceCheck


class PolledHealth:
    """The reasons of unhealthy devices, by UUID, and what the next check is compared with."""

    def __init__(self) -> None:
        self.unhealthy: dict[str, str] = {}
        self._faults: dict[str, str] = {}
        self._exporter: Mapping[str, str] = {}  # its last verdicts
        self._first: dict[tuple[str, str], int] = {}  # counters by device and word
        self._risen: dict[tuple[str, str], str] = {}  # sentences, in the same way

    @property
    def known(self) -> set[str]:
        """The UUIDs of the checked devices."""
        return set(self._faults)

    def update(
        self, checks: Mapping[str, DeviceCheck], exporter: Mapping[str, str] | None
    ) -> dict[str, str]:
        """Apply checks and the exporter's verdicts; return the ended reasons by UUID.

        An exporter that does not answer, None, has its last verdicts: it may restart or hang.
        """
        self._exporter = self._exporter if exporter is None else exporter
        for uuid, check in checks.items():
            if not check.is_busy:
                self._faults[uuid] = check.fault
                for word, count in check.errors.items():
                    self._count((uuid, word), count)
        before, self.unhealthy = self.unhealthy, {}
        for uuid in checks:
            risen = [text for (one, _), text in self._risen.items() if one == uuid]
            reasons = filter(
                None, (self._faults.get(uuid, ""), *risen, self._exporter.get(uuid, ""))
            )
            text = "; ".join(reasons)
            if text:
                self.unhealthy[uuid] = text
        return {
            uuid: reason
            for uuid, reason in before.items()
            if uuid in checks and uuid not in self.unhealthy
        }

    def forget(self, uuids: Collection[str]) -> None:
        """Take the next values of the counters of these devices as their first ones."""
        for key in [key for key in self._first if key[0] in uuids]:
            del self._first[key]
            self._risen.pop(key, None)

    def _count(self, key: tuple[str, str], count: int) -> None:
        first = self._first.setdefault(key, count)
        if count > first:
            self._risen[key] = f"{key[1]} have risen from {first} to {count}"
        else:
            self._first[key] = count
            self._risen.pop(key, None)
