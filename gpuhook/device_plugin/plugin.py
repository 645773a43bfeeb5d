# SPDX-License-Identifier: Apache-2.0
"""The device plugin: it offers the node's GPUs to the kubelet until it is stopped.

It works in turns. A turn reads the configuration and the node if they may have changed, computes
the offer, and passes it to the servers; between turns nothing runs. If a turn fails, the previous
offer remains.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, TypeVar

from gpuhook.device_plugin import daemon_thread, driver_memory, node_snapshot, reconcile
from gpuhook.device_plugin.active_config import ActiveConfig
from gpuhook.device_plugin.change_report import ChangeReport
from gpuhook.device_plugin.change_watch import ChangeWatch
from gpuhook.device_plugin.gpu_policies.policy_service import PolicyService
from gpuhook.device_plugin.guard.guard_service import GuardService
from gpuhook.device_plugin.health.node_health import NodeHealth
from gpuhook.device_plugin.kubelet.claimed_gpus import ClaimedGpus
from gpuhook.device_plugin.kubelet.kubelet_answers import KnownNode, KubeletAnswers
from gpuhook.device_plugin.kubelet.observer import Observer
from gpuhook.device_plugin.kubelet.plugin_sockets import PluginSockets
from gpuhook.device_plugin.labels.label_service import LabelService
from gpuhook.device_plugin.metrics.counters import Counters
from gpuhook.device_plugin.metrics.metrics_service import MetricsService
from gpuhook.device_plugin.mps.mps_service import MpsService
from gpuhook.device_plugin.offer import resources
from gpuhook.device_plugin.reconcile import TurnOutcome
from gpuhook.device_plugin.triggers import Reason, Triggers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpuhook.device_plugin.api_server.api_clients import ApiClients
    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.notifier import Notifier

T = TypeVar("T")
_NOTIFIER_TIMEOUT = 1.0  # seconds
_RESTORE_TIMEOUT = 12.0  # seconds, of the thirty that Kubernetes gives a pod to end


class _StopError(Exception):
    """The plugin must stop during a turn."""


class Plugin:
    """Runs turns, and keeps the snapshot of the node and the outcome of the last one."""

    def __init__(
        self,
        launch: Launch,
        loaded: LoadedConfig,
        clients: ApiClients,
        triggers: Triggers,
        notifier: Notifier,
    ) -> None:
        own = loaded.configuration.own
        is_here = launch.inventory is None
        self._counters = counters = Counters()
        self._launch = launch
        self._triggers = triggers
        self._notifier = notifier
        self._snapshot = node_snapshot.NodeSnapshot()
        self._outcome = TurnOutcome(loaded.configuration)
        self._is_serving = False
        self._mps = MpsService()
        self._policies = PolicyService(launch.host_root)
        self._report = ChangeReport(notifier, launch.pod_resources_socket)
        self._config = ActiveConfig(launch, loaded, clients, self._report, counters)
        self._health = NodeHealth(loaded.configuration, launch, triggers, notifier, counters.xid)
        self._claimed = ClaimedGpus(launch.drivers_directory, triggers, launch.host_root)
        self._answers = KubeletAnswers(KnownNode(), self._free_memory, self._claimed)
        self._guard = GuardService(
            own.guard,
            launch.pod_resources_socket,
            notifier,
            counters,
            host_root=launch.host_root,
            is_this_machine=is_here,
        )
        self._sockets = PluginSockets(
            launch.plugin_directory,
            launch.kubelet_socket,
            self._answers,
            Observer(counters, self._guard.on_allocate),
            pre_start=own.pre_start_check,
        )
        self._labels = LabelService(launch, clients.server, notifier)
        self._metrics = MetricsService(
            counters, notifier, launch.pod_resources_socket, launch.host_root
        )
        self._watch = ChangeWatch(launch, triggers, own.health.poll_interval)

    async def keep(self) -> None:
        """Run a turn for each reason until Reason.STOP."""
        self._watch.start(self._on_poll)
        try:
            await self._turn(frozenset({Reason.CONFIGURATION, Reason.NODE}))
            # A file may have been written before the watch started.
            self._triggers.pull(Reason.CONFIGURATION)
            while Reason.STOP not in (reasons := await self._triggers.next()):
                await self._turn(reasons)
        except _StopError:
            return

    async def end(self) -> None:
        """Withdraw the offer and stop all services, in order."""
        self._watch.stop()
        await self._sockets.stop()
        await self._guard.end()
        await self._restore_policies()
        await self._health.end()
        await self._labels.end(self._config.loaded.configuration)
        await self._metrics.end()
        await self._notifier.end(_NOTIFIER_TIMEOUT)

    async def _restore_policies(self) -> None:
        """Restore the GPUs' policies; if the driver hangs, the next plugin does it."""
        if not self._policies.is_needed:
            return
        work = daemon_thread.begin(self._policies.end, "gpuhook-end")
        await asyncio.wait({work}, timeout=_RESTORE_TIMEOUT)
        if work.done():
            self._report.report_policies(work.result())

    async def _turn(self, reasons: frozenset[Reason]) -> None:
        """Run a turn. A failure is reported and retried later.

        Raises the error of the first turn if failOnInitError is set.
        """
        await self._survive(self._prepare(reasons))
        await self._survive(self._offer())
        self._is_serving = True

    async def _survive(self, part: Awaitable[None]) -> None:
        try:
            await part
        except _StopError:
            raise
        except Exception as error:  # a bug, too, must not withdraw GPUs
            if not self._is_serving and self._config.loaded.configuration.flags.fail_on_init_error:
                raise
            self._report.report_failure(error)
            self._watch.schedule_retry()

    async def _prepare(self, reasons: frozenset[Reason]) -> None:
        """Compute a new offer if one of the reasons requires it."""
        if Reason.RELOAD in reasons:
            self._report.report_reload_request()
        config = self._config
        loaded, is_requested = None, Reason.CONFIGURATION in reasons
        if self._is_serving and (is_requested or (config.is_refused and Reason.NODE in reasons)):
            loaded = config.reread(is_counted=is_requested)
            reasons -= {Reason.CONFIGURATION}
        if loaded is None and not config.is_in_force and Reason.NODE in reasons:
            loaded = config.loaded
        if loaded is not None:
            await self._change_config(loaded, is_requested=is_requested)
        elif reasons - {Reason.HEALTH}:
            await self._reconcile(reasons, config.loaded.configuration)

    async def _change_config(self, loaded: LoadedConfig, *, is_requested: bool) -> None:
        """Compute the offer of another configuration, and apply the configuration.

        A configuration that contradicts the node is refused as a whole, and the previous one
        continues with the node as it is now. After any other error it applies, and the turn is
        retried.
        """
        reasons = frozenset({Reason.CONFIGURATION, Reason.NODE})
        try:
            await self._reconcile(reasons, loaded.configuration)
        except _StopError:
            raise
        except Exception as error:
            if not resources.contradicts(error):
                self._apply(loaded)
                raise
            self._config.refuse(error, loaded, is_counted=is_requested and self._is_serving)
            if not self._config.is_in_force:
                raise
        else:
            self._apply(loaded)
            return
        await self._reconcile(reasons, self._config.loaded.configuration)

    def _apply(self, loaded: LoadedConfig) -> None:
        own = loaded.configuration.own
        self._config.apply(loaded)
        self._watch.set_interval(own.health.poll_interval)
        self._health.apply(loaded.configuration)
        self._guard.configure(own.guard)
        self._sockets.require_pre_start(own.pre_start_check)

    async def _reconcile(self, reasons: frozenset[Reason], configuration: Configuration) -> None:
        """Take a snapshot of the node, unless only a daemon may have exited, and compute the offer.

        Raises the error of the driver: the previous offer remains, as unhealthy.
        """
        snapshot = self._snapshot
        is_new = bool(reasons & {Reason.NODE, Reason.CONFIGURATION})
        if is_new:
            snapshot = await self._take_snapshot(reasons, configuration)
        outcome = await self._in_thread(
            lambda: reconcile.reconcile(
                self._launch, configuration, snapshot, self._mps, self._policies
            )
        )
        self._snapshot, self._outcome = snapshot, outcome
        self._report.report_outcome(outcome)
        if not is_new:
            return
        if snapshot.error is None:
            self._report.clear_failure()
        if snapshot.is_whole and outcome.context.is_whole:
            self._watch.clear_retry()
        else:
            self._watch.schedule_retry()

    async def _take_snapshot(
        self, reasons: frozenset[Reason], configuration: Configuration
    ) -> node_snapshot.NodeSnapshot:
        domain = self._health.session_domain
        restarts = Reason.NODE in reasons and self._watch.may_have_other_devices(domain)
        async with self._health.without_session() if restarts else nullcontext():
            with self._health.driver_deadline():
                snapshot = await self._in_thread(
                    lambda: node_snapshot.take(self._launch, configuration)
                )
        self._watch.set_snapshot(snapshot)
        snapshot = node_snapshot.with_lost(snapshot, self._snapshot)
        self._health.update(snapshot, asyncio.get_running_loop())
        if snapshot.error is not None:
            if all(part.error is not None for part in snapshot.parts):
                if not self._snapshot.parts:
                    self._snapshot = snapshot
                raise snapshot.error
            self._report.report_failure(snapshot.error)
        return snapshot

    async def _in_thread(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, run in a thread, however long it takes.

        Meanwhile changes of health are offered at once. Raises _StopError if the plugin must stop:
        the driver may hang.
        """
        work = daemon_thread.begin(call, "gpuhook-turn")
        while not work.done():
            urgent = asyncio.ensure_future(self._triggers.urgent())
            both: tuple[asyncio.Future[Any], ...] = (work, urgent)
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not urgent.done():
                urgent.cancel()
            elif Reason.STOP in urgent.result():
                work.cancel()
                raise _StopError
            elif self._is_serving:
                await self._survive(self._offer())
        return work.result()

    async def _offer(self) -> None:
        """Pass the offer, with the current health of its devices, to the servers and services."""
        outcome = self._outcome
        configuration = outcome.configuration
        offered = outcome.offer.resources
        devices = {d.uuid: d for resource in offered for d in resource.devices}
        unhealthy = self._claimed.unavailable(offered) | outcome.unusable
        unhealthy |= self._health.unhealthy(devices.values())
        links = {part.domain: part.links for part in self._snapshot.parts}
        context = replace(outcome.context, unhealthy=unhealthy)
        self._answers.known = KnownNode(configuration, context, links)
        await self._sockets.offer(offered, unhealthy)
        self._report.report_offer(offered, unhealthy)
        guard = configuration.own.guard.ends_processes
        self._report.report_isolation(offered, outcome.unenforced, guard=guard)
        own = self._config.loaded.configuration.own
        await self._metrics.update(
            own.metrics, self._snapshot, offered, unhealthy, guards=own.guard.ends_processes
        )
        libraries = {part.domain for part in self._snapshot.parts if part.library}
        by_library = tuple(resource for resource in offered if resource.domain in libraries)
        self._guard.update(self._snapshot, by_library)
        self._labels.update(configuration, self._snapshot, offered)

    def _on_poll(self) -> None:
        self._health.on_poll()
        self._guard.on_poll()
        self._claimed.on_poll()
        if self._mps.is_needed:
            self._triggers.pull(Reason.DAEMON)

    def _free_memory(self, uuid: str) -> int | None:
        return driver_memory.free_memory(self._snapshot, uuid, self._launch.host_root)
