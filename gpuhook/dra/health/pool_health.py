# SPDX-License-Identifier: Apache-2.0
"""The health of all drivers' devices, by the services that the device plugin has."""

from __future__ import annotations

from gpuhook.device_plugin.health import health_marks
from gpuhook.device_plugin.health.device_trouble import LOST, SILENT, DeviceTrouble
from gpuhook.device_plugin.health.node_health import NodeHealth
from gpuhook.dra.health import device_taints
from gpuhook.dra.health.health_stream import HealthStream

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.triggers import Triggers
    from gpuhook.dra.pool.pool_device import Pool
    from gpuhook.vendors.plugin.vendor_device import Device
    from gpuhook.vendors.plugin.vendor_part import VendorPart


class PoolHealth(NodeHealth):
    """The taints and the stream of each driver; a change of health triggers a turn."""

    def __init__(
        self,
        configuration: Configuration,
        launch: Launch,
        triggers: Triggers,
        notifier: Notifier,
        count_xid: Callable[[str, int], None],
    ) -> None:
        super().__init__(
            configuration, launch, triggers, notifier, count_xid, service=health_marks.DRA
        )
        self._effect = configuration.own.health.taint_effect
        self._parts: tuple[VendorPart, ...] = ()
        self._streams: dict[str, HealthStream] = {}

    def apply(self, configuration: Configuration) -> None:
        """Apply a configuration."""
        super().apply(configuration)
        self._effect = configuration.own.health.taint_effect

    def update(self, snapshot: NodeSnapshot, loop: asyncio.AbstractEventLoop) -> None:
        super().update(snapshot, loop)
        self._parts = snapshot.parts

    def troubles(self, devices: Iterable[Device]) -> dict[str, tuple[DeviceTrouble, ...]]:
        """Return the troubles of the unhealthy ones of `devices`, by UUID.

        Those of a driver that serves no device, and of devices that it no longer has, are in the
        snapshot.
        """
        known = list(devices)
        found = super().troubles(known)
        for part in self._parts:
            for device in known:
                own = found.get(device.uuid, ())
                if part.trouble and device.domain == part.domain:
                    found[device.uuid] = (*own, DeviceTrouble(SILENT, part.trouble))
                elif device.uuid in part.lost and not own:
                    found[device.uuid] = (DeviceTrouble(LOST, part.lost[device.uuid]),)
        return found

    def stream(self, driver: str) -> HealthStream:
        """Return the service of a driver for the kubelet."""
        return self._streams.setdefault(driver, HealthStream())

    def with_taints(self, pool: Pool) -> Pool:
        """Return a pool with the taints of its devices, and send their health to the kubelet."""
        troubles = self.troubles(one.device for one in pool.devices)
        self.stream(pool.driver).publish(pool, troubles)
        return device_taints.tainted(pool, troubles, self._effect)

    async def end(self) -> None:
        await super().end()
        for stream in self._streams.values():
            stream.end()
