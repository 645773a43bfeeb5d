# SPDX-License-Identifier: Apache-2.0
"""Keeps the health of the devices of vendors without events current, at the plugin's polls.

The files of a driver that resets a GPU can block, so they are read in a thread; a read that lasts
longer than the interval skips polls. While they do not answer in time, all devices of the driver
are unhealthy. The exporter of the vendor, if the node has one, is queried at the same time.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial

from gpuhook.device_plugin import daemon_thread, driver_calls
from gpuhook.device_plugin.health import exporter_client
from gpuhook.device_plugin.health.device_trouble import FAULT, SILENT, DeviceTrouble
from gpuhook.device_plugin.health.polled_health import PolledHealth
from gpuhook.device_plugin.triggers import Reason
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.triggers import Triggers
    from gpuhook.vendors.plugin.vendor_part import DeviceCheck, VendorPart


class PolledHealthService:
    """Checks the devices of `parts`, each vendor on its own."""

    def __init__(self, launch: Launch, triggers: Triggers, notifier: Notifier) -> None:
        self._launch = launch
        self._triggers = triggers
        self._notifier = notifier
        self._parts: dict[str, VendorPart] = {}
        self._health: dict[str, PolledHealth] = {}
        self._interval = 0.0  # seconds; 0: at each poll
        self._checked_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._reported: dict[str, str] = {}  # the last trouble of each vendor
        self._silent: dict[str, str] = {}  # why all devices of a vendor are unhealthy

    def configure(self, interval: float) -> None:
        """Check at most every `interval` seconds."""
        self._interval = interval

    def update(self, parts: Iterable[VendorPart]) -> None:
        """Check these parts from now on."""
        before, self._parts = self._parts, {part.domain: part for part in parts}
        for domain, part in self._parts.items():
            health = self._health.setdefault(domain, PolledHealth())
            if domain in before and before[domain].token != part.token:
                health.forget(health.known)  # another driver, or other devices
        self._check()

    def on_poll(self) -> None:
        """Check the devices if the interval has passed."""
        if time.monotonic() - self._checked_at >= self._interval:
            self._check()

    def troubles(self, devices: Iterable[Device]) -> dict[str, tuple[DeviceTrouble, ...]]:
        """Return the troubles of the unhealthy ones of `devices`, by UUID."""
        faults = {
            uuid: text for one in self._health.values() for uuid, text in one.unhealthy.items()
        }
        found: dict[str, tuple[DeviceTrouble, ...]] = {}
        for device in devices:
            if silent := self._silent.get(device.domain):
                found[device.uuid] = (DeviceTrouble(SILENT, silent),)
            elif fault := faults.get(device.uuid):
                found[device.uuid] = (DeviceTrouble(FAULT, fault),)
        return found

    def clear(self, gpu: str) -> None:
        """Forget the risen counters of a GPU, or of "all", at an operator's request."""
        for health in self._health.values():
            health.forget(health.known if gpu == "all" else {gpu})
        self._check()

    async def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _check(self) -> None:
        is_busy = self._task is not None and not self._task.done()
        if self._parts and not is_busy and self._launch.inventory is None:
            self._checked_at = time.monotonic()
            self._task = asyncio.ensure_future(self._check_parts())

    async def _check_parts(self) -> None:
        for domain, part in tuple(self._parts.items()):
            try:
                await self._check_part(part)
            except Exception as error:  # a bug, too, must not end the checks
                self._report(domain, f"health is not checked: {error!r}")
            else:
                self._reported.pop(domain, None)

    async def _check_part(self, part: VendorPart) -> None:
        vendor, launch = vendor_of_resource(part.domain), self._launch

        def read() -> dict[str, DeviceCheck]:
            return vendor.check_devices(part, launch.host_root, launch.node_dev_root)

        ask = partial(driver_calls.call_driver, vendor, "health", read)
        try:
            checks = await daemon_thread.begin(ask, "gpuhook-health")
        except GpuhookError as error:
            self._set_silent(part.domain, error.message)
            return
        self._set_silent(part.domain, "")
        exporter: dict[str, str] | None = {}
        if vendor.exporter is not None:
            try:
                exporter = await exporter_client.unhealthy_devices(
                    vendor.exporter, launch.host_root
                )
            except OSError as error:
                exporter = None
                self._report(f"{part.domain} exporter", str(error))
            else:
                self._reported.pop(f"{part.domain} exporter", None)
        health = self._health[part.domain]
        before = health.unhealthy
        ended = health.update(checks, exporter)
        for uuid, reason in ended.items():
            self._notifier.info("GpuHealthy", f"{uuid}: healthy again after: {reason}", uuid)
        if health.unhealthy != before:
            self._triggers.pull(Reason.HEALTH)

    def _set_silent(self, domain: str, reason: str) -> None:
        """Note that the driver of a vendor does not answer, or with "" that it does."""
        if self._silent.get(domain, "") != reason:
            self._silent[domain] = reason
            self._triggers.pull(Reason.HEALTH)

    def _report(self, what: str, message: str) -> None:
        if self._reported.get(what) != message:
            self._reported[what] = message
            self._notifier.log.warning(message, domain=what)
