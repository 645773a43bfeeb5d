# SPDX-License-Identifier: Apache-2.0
"""The health of all GPUs of a node: by events of NVML, and by polls for the other vendors."""

from __future__ import annotations

from gpuhook.device_plugin.health.health_marks import PLUGIN
from gpuhook.device_plugin.health.health_service import HealthService
from gpuhook.device_plugin.health.polled_service import PolledHealthService
from gpuhook.device_plugin.vendor_flags import vendor_flags
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterable

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.health.device_trouble import DeviceTrouble
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.triggers import Triggers


class NodeHealth(HealthService):
    """The health of the parts of a snapshot in addition to that of NVML's GPUs."""

    def __init__(
        self,
        configuration: Configuration,
        launch: Launch,
        triggers: Triggers,
        notifier: Notifier,
        count_xid: Callable[[str, int], None],
        *,
        service: str = PLUGIN,
    ) -> None:
        self._polled = PolledHealthService(launch, triggers, notifier)
        super().__init__(
            configuration.own.health,
            launch.host_root,
            triggers,
            notifier,
            count_xid,
            clear_others=self._polled.clear,
            is_this_machine=launch.inventory is None,
            service=service,
        )

    def apply(self, configuration: Configuration) -> None:
        """Apply a configuration."""
        self.configure(configuration.own.health)
        flags = (vendor_flags(configuration.flags, vendor.name) for vendor in vendors())
        self._polled.configure(max(one.check_interval for one in flags))

    def troubles(self, devices: Iterable[Device]) -> dict[str, tuple[DeviceTrouble, ...]]:
        """Return the troubles of the unhealthy ones of `devices`, by UUID."""
        known = list(devices)
        return {**self._polled.troubles(known), **super().troubles(known)}

    def update(self, snapshot: NodeSnapshot, loop: asyncio.AbstractEventLoop) -> None:
        super().update(snapshot, loop)
        polled = (part for part in snapshot.parts if part.domain != self.session_domain)
        self._polled.update(polled)

    def on_poll(self) -> None:
        super().on_poll()
        self._polled.on_poll()

    async def end(self) -> None:
        await super().end()
        await self._polled.end()
