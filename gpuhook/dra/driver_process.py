# SPDX-License-Identifier: Apache-2.0
"""The process of the DRA drivers: start, signals, turns, end.

Each vendor that the node has gets a driver. A turn reads the configuration and the node if they may
have changed; if it fails, the drivers continue with what they have.
"""

from __future__ import annotations

import asyncio
import faulthandler
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.active_config import load
from gpuhook.device_plugin.api_server.api_clients import ApiClients
from gpuhook.device_plugin.change_watch import ChangeWatch
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.device_plugin.notifier import Notifier
from gpuhook.device_plugin.triggers import Reason, Triggers
from gpuhook.dra.driver import NodeDriver
from gpuhook.dra.health.pool_health import PoolHealth
from gpuhook.dra.node_services import NodeServices
from gpuhook.dra.node_view import NodeView
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.error_text import worded
from gpuhook.host.logs import logger
from gpuhook.vendors.catalogue import vendor_of_resource, vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.dra.claims.settings.device_share import DeviceShare
    from gpuhook.dra.dra_options import DraLaunch
    from gpuhook.vendors.interfaces.vendor_interface import Vendor

_NOTIFIER_TIMEOUT = 1.0  # seconds


def run(launch: DraLaunch) -> int:
    """Serve until SIGTERM, SIGINT or SIGQUIT, and return the exit status, 0.

    SIGHUP reloads the configuration and the node. Raises GpuhookError and OSError if the drivers
    cannot start.
    """
    with suppress(OSError, RuntimeError):  # of a stderr that is no file
        # A crash of a driver's library names its function.
        faulthandler.enable(all_threads=False)
    asyncio.run(_serve(launch))
    return 0


async def _serve(launch: DraLaunch) -> None:
    triggers = Triggers()
    triggers.handle_signals()
    clients = ApiClients(launch.plugin, logger(), launch.service_account)
    if clients.server is None:
        reason = f"{launch.service_account} has no token for the API server"
        hint = "mount the token of the service account, or name its directory: --service-account"
        if launch.plugin.inventory is not None:
            reason = "a node of --inventory is not in the cluster"
            hint = "run it without --inventory; gpuhook explain shows the devices of an inventory"
        raise fault("GH2609", reason=reason, hint=hint)
    await clients.start(lambda: triggers.pull(Reason.CONFIGURATION))
    try:
        drivers = Drivers(launch, clients, clients.server, triggers)
        try:
            await drivers.keep()
        finally:
            await drivers.end()
    finally:
        await clients.end()


class Drivers:
    """The drivers of this node's vendors, and the turns that update them."""

    def __init__(
        self, launch: DraLaunch, clients: ApiClients, server: ApiServer, triggers: Triggers
    ) -> None:
        """Read the configuration; raises what config_source.load() raises."""
        self._launch = launch
        self._clients = clients
        self._server = server
        self._triggers = triggers
        self._loaded = load(launch.plugin, clients.label, "")
        self._counters = Counters()
        self._notifier = Notifier(logger(), clients.events)
        self._view = NodeView(launch.plugin)
        self._drivers: dict[str, NodeDriver] = {}  # by domain of the vendor
        self._snapshot = NodeSnapshot()
        self._reported: set[str] = set()  # warnings and errors of the last turn
        self._seen: set[str] = set()  # those of this turn
        plugin = launch.plugin
        self._services = NodeServices(
            plugin,
            self._loaded.configuration,
            self._notifier,
            self._counters,
            server,
            held=self._held,
        )
        own = self._loaded.configuration.own
        self._watch = ChangeWatch(plugin, triggers, own.health.poll_interval)
        self._health = PoolHealth(
            self._loaded.configuration, plugin, triggers, self._notifier, self._counters.xid
        )

    async def keep(self) -> None:
        """Run a turn for each reason until Reason.STOP."""
        self._watch.start(self._on_poll)
        await self._start_known()
        reasons = frozenset({Reason.NODE})
        while Reason.STOP not in reasons:
            if not await self._turn(reasons):
                return
            reasons = await self._triggers.next()

    async def end(self) -> None:
        """Stop the drivers; what they have prepared and published remains."""
        self._watch.stop()
        await self._health.end()
        await asyncio.gather(*(one.end() for one in self._drivers.values()), return_exceptions=True)
        await self._services.end()
        await self._notifier.end(_NOTIFIER_TIMEOUT)

    async def _turn(self, reasons: frozenset[Reason]) -> bool:
        """Run a turn, and return whether to continue; failures are logged, and retried later."""
        is_same_node = reasons <= {Reason.HEALTH, Reason.DAEMON}
        if not is_same_node:
            self._reported, self._seen = self._seen, set()
        if Reason.CONFIGURATION in reasons:
            self._reread()
        work = asyncio.ensure_future(self._refresh(reasons) if is_same_node else self._update())
        while not work.done():
            urgent = asyncio.ensure_future(self._triggers.urgent())
            await asyncio.wait({work, urgent}, return_when=asyncio.FIRST_COMPLETED)
            if not urgent.done():
                urgent.cancel()
            elif Reason.STOP in urgent.result():
                work.cancel()
                return False
            else:  # the driver may hang, and is what has become unhealthy
                await self._survive(self._offer())
        await self._survive(work)
        return True

    async def _survive(self, work: Awaitable[None]) -> None:
        """Wait for work; a failure is logged, and the next turn retries."""
        try:
            await work
        except (GpuhookError, OSError) as error:
            self._report(worded(error))
            self._watch.schedule_retry()
        except Exception as error:  # a bug, too, must not end the drivers
            logger().error("failed", exc_info=error)
            self._watch.schedule_retry()

    def _reread(self) -> None:
        """Read the configuration again; a faulty one is refused."""
        try:
            loaded = load(self._launch.plugin, self._clients.label, self._loaded.name)
        except (GpuhookError, OSError) as error:
            self._counters.count("config_reloads", "refused")
            self._report(worded(error))
            return
        is_new = loaded.digest != self._loaded.digest
        self._counters.count("config_reloads", "applied" if is_new else "unchanged")
        self._use(loaded)

    def _use(self, loaded: LoadedConfig) -> None:
        self._loaded = loaded
        self._watch.set_interval(loaded.configuration.own.health.poll_interval)
        self._health.apply(loaded.configuration)

    async def _update(self) -> None:
        """Read the node, and update the drivers."""
        configuration = self._loaded.configuration
        self._counters.set_config(self._loaded.name, self._loaded.digest)
        snapshot = await self._read_node(configuration)
        if snapshot.is_whole:
            self._watch.clear_retry()
        else:
            self._watch.schedule_retry()
        self._services.update(configuration, snapshot, self._view.forms)
        for warning in self._view.warnings:
            self._warn(warning)
        for part in snapshot.parts:
            if part.has_hardware:
                await self._start(vendor_of_resource(part.domain))
        await self._set_modes()
        await self._offer()

    async def _refresh(self, reasons: frozenset[Reason]) -> None:
        """Update what changes without the node: servers that died, the health of devices."""
        if Reason.DAEMON in reasons:
            await self._set_modes()
        await self._offer()

    async def _read_node(self, configuration: Configuration) -> NodeSnapshot:
        """Return a snapshot, with a new session of NVML if the node may have other devices."""
        restarts = self._watch.may_have_other_devices(self._health.session_domain)
        async with self._health.without_session() if restarts else nullcontext():
            with self._health.driver_deadline():
                take = partial(self._view.take, configuration)
                snapshot = await daemon_thread.begin(take, "gpuhook-turn")
        self._watch.set_snapshot(snapshot)
        self._health.update(snapshot, asyncio.get_running_loop())
        self._snapshot = snapshot
        return snapshot

    async def _offer(self) -> None:
        """Update drivers and metrics, with the present health of the devices."""
        forms, configuration = self._view.forms, self._loaded.configuration
        bad = self._health.unhealthy(one.device for one in forms.forms.values())
        await self._services.update_metrics(configuration, self._snapshot, forms, bad)
        if not self._snapshot.parts:  # the node is not known yet: the pools would be empty
            return
        states = {domain: self._view.state(domain) for domain in self._drivers}
        await asyncio.gather(
            *(
                self._drivers[domain].update(
                    replace(state, pool=self._health.with_taints(state.pool))
                )
                for domain, state in states.items()
            )
        )

    async def _start_known(self) -> None:
        """Start the drivers that have run here: a driver of GPUs may hang, and claims must end."""
        for vendor in vendors():
            if NodeDriver.has_run(self._launch, vendor.dra_driver):
                await self._start(vendor)

    async def _start(self, vendor: Vendor) -> None:
        """Start the driver of a vendor unless it runs; a failure is logged, and retried later."""
        domain, name = vendor.domain, vendor.dra_driver
        if domain in self._drivers:
            return
        current = partial(self._view.current, domain)
        driver = NodeDriver(
            name,
            self._launch,
            self._server,
            self._counters,
            current,
            services=self._services,
            health=self._health.stream(name),
        )
        self._drivers[domain] = driver
        try:
            await driver.start()
        except (GpuhookError, OSError) as error:
            del self._drivers[domain]
            self._report(worded(error))
            self._watch.schedule_retry()

    def _held(self) -> list[DeviceShare]:
        """Return the shares of all prepared claims."""
        return [share for driver in list(self._drivers.values()) for share in driver.shares()]

    def _on_poll(self) -> None:
        self._health.on_poll()
        self._services.on_poll()
        if self._services.has_servers:
            self._triggers.pull(Reason.DAEMON)

    async def _set_modes(self) -> None:
        """Set the modes of devices that the file and prepared claims need.

        Not while the claims of a driver are unknown: their modes must remain.
        """
        known = (one for one in vendors() if NodeDriver.has_run(self._launch, one.dra_driver))
        if all(one.domain in self._drivers for one in known):
            configuration, snapshot = self._loaded.configuration, self._snapshot
            forms = self._view.forms
            for error in await self._services.set_modes(configuration, snapshot, forms):
                self._report(error)

    def _report(self, error: GpuhookError) -> None:
        self._seen.add(error.message)
        if error.message not in self._reported:
            self._notifier.report_fault("DriverFault", error)

    def _warn(self, warning: str) -> None:
        self._seen.add(warning)
        if warning not in self._reported:
            logger().warning(warning)
