# SPDX-License-Identifier: Apache-2.0
"""The taints of unhealthy devices: no claim gets such a device until the taint ends.

A taint ends with its trouble: by a reset, a reboot, a reload of the driver, a driver that requires
no action, a check that finds no fault, or `gpuhook health clear`. An XID that a program causes is
no trouble, and taints nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from math import inf

from gpuhook.device_plugin.health import device_trouble as trouble
from gpuhook.dra.pool.pool_device import Taint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

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


def tainted(pool: Pool, troubles: Mapping[str, Sequence[DeviceTrouble]], effect: str) -> Pool:
    """Return the pool with the taints of these troubles, by the UUIDs of the devices, added.

    `effect` is that of the configuration.
    """
    found = {uuid: _taints(pool.driver, own, effect) for uuid, own in troubles.items()}
    devices = tuple(
        replace(one, taints=(*one.taints, *found.get(one.device.uuid, ()))) for one in pool.devices
    )
    return replace(pool, devices=devices)


def _taints(driver: str, troubles: Iterable[DeviceTrouble], effect: str) -> Iterator[Taint]:
    """Yield a taint for each kind of trouble, with the value and the time of the oldest one.

    A trouble with an unknown time is the newest. Its taint has no time: the publisher keeps that
    of the API server.
    """
    oldest: dict[str, DeviceTrouble] = {}
    for one in sorted(troubles, key=lambda one: one.since or inf):
        oldest.setdefault(_KEYS[one.kind], one)
    for name in dict.fromkeys(_KEYS.values()):
        if name in oldest:
            one = oldest[name]
            # A driver that hangs or is upgraded must not evict the pods that run.
            own = NO_SCHEDULE if one.kind == trouble.SILENT else effect
            yield Taint(f"{driver}/{name}", one.value, own, _time(one.since))


def _time(seconds: float) -> str:
    """Return a time for the API server, "" for an unknown one."""
    moment = datetime.fromtimestamp(int(seconds), timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ") if seconds else ""
