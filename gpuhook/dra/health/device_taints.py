# SPDX-License-Identifier: Apache-2.0
"""The taints of unhealthy devices: no claim gets such a device until the taint ends.

A taint ends with its trouble: by a reset, a reboot, a reload of the driver, a driver that requires
no action, a check that finds no fault, or `gpuhook health clear`. An XID that a program causes is
no trouble, and taints nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

from gpuhook.device_plugin.health import device_trouble as trouble
from gpuhook.dra.pool.pool_device import Taint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.device_plugin.health.device_trouble import DeviceTrouble
    from gpuhook.dra.pool.pool_device import Pool

NO_SCHEDULE = "NoSchedule"
# The keys without the name of the driver, in the order of their taints.
_KEYS = {
    trouble.LOST: "gpu-lost",
    trouble.ABSENT: "gpu-lost",
    trouble.XID: "xid",
    trouble.ACTION: "recovery-action",
    trouble.FAULT: "fault",
    trouble.SILENT: "unmonitored",
}


class PoolTaints:
    """Taints the devices of one driver's pool. `effect` is that of the configuration."""

    def __init__(self, driver: str, effect: str = NO_SCHEDULE) -> None:
        self._driver = driver
        self.effect = effect
        self._first: dict[tuple[str, str], float] = {}  # by the UUID of a device, and the key

    def tainted(
        self, pool: Pool, troubles: Mapping[str, Sequence[DeviceTrouble]], now: float
    ) -> Pool:
        """Return the pool with the taints of these troubles, by the UUIDs of the devices.

        A taint keeps its time while it lasts. `now` is in seconds since 1970.
        """
        found = {uuid: self._taints(uuid, own, now) for uuid, own in troubles.items()}
        names = {(uuid, taint.key) for uuid, taints in found.items() for taint in taints}
        self._first = {key: time for key, time in self._first.items() if key in names}
        devices = (replace(one, taints=found.get(one.device.uuid, ())) for one in pool.devices)
        return replace(pool, devices=tuple(devices))

    def _taints(
        self, uuid: str, troubles: Iterable[DeviceTrouble], now: float
    ) -> tuple[Taint, ...]:
        """Return a taint for each kind of trouble; the oldest trouble has its value."""
        oldest: dict[str, DeviceTrouble] = {}
        for one in sorted(troubles, key=lambda one: one.since or now):
            oldest.setdefault(_KEYS[one.kind], one)
        return tuple(
            self._taint(uuid, key, oldest[key], now)
            for key in dict.fromkeys(_KEYS.values())
            if key in oldest
        )

    def _taint(self, uuid: str, name: str, one: DeviceTrouble, now: float) -> Taint:
        key = f"{self._driver}/{name}"
        first = self._first.setdefault((uuid, key), one.since or now)
        # A driver that hangs or is upgraded must not evict the pods that run.
        effect = NO_SCHEDULE if one.kind == trouble.SILENT else self.effect
        return Taint(key, one.value, effect, _time(first))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
