# SPDX-License-Identifier: Apache-2.0
"""The device plugin: it offers the node's GPUs to the kubelet for as long as its process runs.

It takes turns. A turn reads what may have changed, the configuration or the node, works out what
is on offer, and hands that to the servers; between turns nothing runs. What goes wrong in a turn
leaves what was offered before as it was.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import Any, TypeVar

from gpuhook.device_plugin import daemon_thread, driver_usage, node_snapshot, reconcile
from gpuhook.device_plugin.allocate.allocation_context import with_health
from gpuhook.device_plugin.change_report import TurnNews
from gpuhook.device_plugin.change_watch import Lookout
from gpuhook.device_plugin.kubelet.observer import Log
from gpuhook.device_plugin.kubelet.observer_group import all_of, on_allocate
from gpuhook.device_plugin.kubelet.plugin_sockets import Serving
from gpuhook.device_plugin.kubelet_answers import Answering, KnownNode
from gpuhook.device_plugin.metrics.counters import Observations
from gpuhook.device_plugin.offer import resources
from gpuhook.device_plugin.reconcile import TurnOutcome
from gpuhook.device_plugin.services.config_service import ConfigKeeping
from gpuhook.device_plugin.services.guard_service import Guarding
from gpuhook.device_plugin.services.health_service import Monitoring
from gpuhook.device_plugin.services.label_service import Labelling
from gpuhook.device_plugin.services.metrics_service import Measuring
from gpuhook.device_plugin.services.mps_service import MpsKeeping
from gpuhook.device_plugin.services.policy_service import PolicyKeeping
from gpuhook.device_plugin.triggers import Reason, Triggers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gpuhook.device_plugin.api_clients import Connections
    from gpuhook.device_plugin.config.config_source import LoadedConfig
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.launch_options import Launch
    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.device_plugin.notifier import News

T = TypeVar("T")
_LAST_NEWS_WITHIN = 1.0  # seconds
_PUT_BACK_WITHIN = 12.0  # seconds, of the thirty that Kubernetes gives a pod to end


class _StopError(Exception):
    """The plugin is to stop in the middle of a turn."""


class Plugin:
    """The turns, and what one leaves for the next: configuration, look at the node, outcome."""

    def __init__(
        self,
        launch: Launch,
        loaded: LoadedConfig,
        connections: Connections,
        triggers: Triggers,
        news: News,
    ) -> None:
        own = loaded.configuration.own
        self._launch = launch
        self._triggers = triggers
        self._news = news
        self._look: Look = node_snapshot.Look()
        self._outcome = TurnOutcome()
        self._worked_out = loaded.configuration  # what the outcome is of
        self._is_serving = False
        self._mps = MpsKeeping()
        self._policies = PolicyKeeping(launch.host_root)
        self._observations = Observations()
        self._told = TurnNews(news, launch.pod_resources_socket)
        self._configs = ConfigKeeping(launch, loaded, connections, self._told, self._observations)
        self._monitoring = Monitoring(
            own.health,
            launch.host_root,
            triggers,
            news,
            self._observations.xid,
            keeps=launch.inventory is None,
        )
        self._answering = Answering(KnownNode(self._look.topology), self._free_memory)
        self._guarding = Guarding(
            own.guard,
            launch.pod_resources_socket,
            news,
            self._observations,
            keeps=launch.inventory is None,
        )
        self._serving = Serving(
            launch.plugin_directory,
            launch.kubelet_socket,
            self._answering,
            all_of(Log(), self._observations, on_allocate(self._guarding.allocated)),
            pre_start=own.pre_start_check,
        )
        self._labelling = Labelling(launch, connections.server, news)
        self._measuring = Measuring(
            self._observations, news, launch.pod_resources_socket, launch.host_root
        )
        self._lookout = Lookout(launch, triggers, own.health.poll_seconds)

    async def keep(self) -> None:
        """Take a turn whenever there is a reason for one, until there is one to stop."""
        self._lookout.start(self._polled)
        try:
            await self._turn(frozenset({Reason.CONFIGURATION, Reason.NODE}))
            # It may have been written while nobody watched yet.
            self._triggers.pull(Reason.CONFIGURATION)
            while Reason.STOP not in (reasons := await self._triggers.next()):
                await self._turn(reasons)
        except _StopError:
            return

    async def end(self) -> None:
        """Withdraw what is offered, in order, and stop."""
        self._lookout.stop()
        await self._serving.stop()
        await self._guarding.end()
        await self._put_back()
        await self._monitoring.end()
        await self._labelling.end(self._configs.loaded.configuration)
        await self._measuring.end()
        await self._news.end(_LAST_NEWS_WITHIN)

    async def _put_back(self) -> None:
        """Give the GPUs what they had; if the driver hangs, that is left to the next plugin."""
        if not self._policies.is_needed:
            return
        work = daemon_thread.begin(self._policies.end, "gpuhook-end")
        await asyncio.wait({work}, timeout=_PUT_BACK_WITHIN)
        if work.done():
            self._told.policies(work.result())

    async def _turn(self, reasons: frozenset[Reason]) -> None:
        """Take a turn. What fails in it is told, and tried again later; it ends nothing.

        Raises what failed where nothing was offered yet and that is to be fatal.
        """
        await self._outlived(self._prepare(reasons))
        await self._outlived(self._offer())
        self._is_serving = True

    async def _outlived(self, part: Awaitable[None]) -> None:
        try:
            await part
        except _StopError:
            raise
        except Exception as error:  # also a fault of ours is no reason to take GPUs away
            if not self._is_serving and self._configs.loaded.configuration.flags.fail_on_init_error:
                raise
            self._told.turn_failed(error)
            self._lookout.unsettled()

    async def _prepare(self, reasons: frozenset[Reason]) -> None:
        """Work out what is to be offered, if there is a reason to."""
        if Reason.ASKED in reasons:
            self._told.asked()
        loaded, is_asked = None, Reason.CONFIGURATION in reasons
        if self._is_serving and (is_asked or (self._configs.is_refused and Reason.NODE in reasons)):
            loaded = self._configs.reread(is_counted=is_asked)
            reasons -= {Reason.CONFIGURATION}
        if loaded is None and not self._configs.is_in_force and Reason.NODE in reasons:
            loaded = self._configs.loaded
        if loaded is not None:
            await self._change(loaded, is_asked=is_asked)
        elif reasons - {Reason.HEALTH}:
            await self._work_out(reasons, self._configs.loaded.configuration)

    async def _change(self, loaded: LoadedConfig, *, is_asked: bool) -> None:
        """Work out what another configuration offers, and go by it.

        One that the node cannot have is refused as a whole: the last one goes on, with the node as
        it is now. Whatever else fails is no fault of it, and is tried again.
        """
        reasons = frozenset({Reason.CONFIGURATION, Reason.NODE})
        try:
            await self._work_out(reasons, loaded.configuration)
        except _StopError:
            raise
        except Exception as error:
            if not resources.contradicts(error):
                self._apply(loaded)
                raise
            self._configs.refuse(error, loaded, is_counted=is_asked and self._is_serving)
            if not self._configs.is_in_force:
                raise
        else:
            self._apply(loaded)
            return
        await self._work_out(reasons, self._configs.loaded.configuration)

    def _apply(self, loaded: LoadedConfig) -> None:
        """Have everybody go by a configuration."""
        own = loaded.configuration.own
        self._configs.apply(loaded)
        self._lookout.configured(own.health.poll_seconds)
        self._monitoring.configured(own.health)
        self._guarding.configured(own.guard)
        self._serving.require_pre_start(own.pre_start_check)

    async def _work_out(self, reasons: frozenset[Reason], configuration: Configuration) -> None:
        """Look at the node, unless only a daemon is in doubt, and work out what it offers."""
        look = self._look
        is_anew = bool(reasons & {Reason.NODE, Reason.CONFIGURATION})
        if is_anew:
            is_another = Reason.NODE in reasons and self._lookout.is_another_node()
            async with self._monitoring.aside() if is_another else nullcontext():
                with self._monitoring.looking():
                    look = await self._slow(lambda: node_snapshot.look(self._launch, configuration))
            self._lookout.looked(look)
            self._monitoring.looked(look, asyncio.get_running_loop())
            if look.trouble is not None:  # what there was stays, as unhealthy
                raise look.trouble
            look = node_snapshot.remembering(look, self._look)
        outcome = await self._slow(
            lambda: reconcile.worked_out(
                self._launch, configuration, look, self._mps, self._policies
            )
        )
        self._look, self._outcome, self._worked_out = look, outcome, configuration
        self._told.worked_out(outcome)
        if not is_anew:
            return
        self._told.went_well()
        if look.is_whole and outcome.context.is_whole:
            self._lookout.settled()
        else:
            self._lookout.unsettled()

    async def _slow(self, call: Callable[[], T]) -> T:
        """Return what `call` does in a thread of its own, as long as that takes.

        Health does not wait for it, nor does the end: a driver may hang. Raises _StopError.
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
                await self._outlived(self._offer())
        return work.result()

    async def _offer(self) -> None:
        """Hand what is on offer to the servers, with the health that the devices have now."""
        configuration, outcome = self._worked_out, self._outcome
        offered = outcome.offer.resources
        devices = {d.uuid: d for resource in offered for d in resource.devices}
        book = self._monitoring.unhealthy(devices.values())
        unhealthy = {**outcome.unusable, **book}
        context = with_health(outcome.context, unhealthy)
        self._answering.known = KnownNode(self._look.topology, configuration, context, unhealthy)
        await self._serving.offer(offered, unhealthy)
        self._told.offered(offered, unhealthy)
        self._told.isolated(offered, outcome.bounds, outcome.unheld)
        own = self._configs.loaded.configuration.own
        guards = own.guard.ends_processes
        await self._measuring.offered(own.metrics, self._look, offered, unhealthy, guards=guards)
        self._guarding.offered(self._look, offered)
        self._labelling.offered(configuration, self._look, offered)

    def _polled(self) -> None:
        """Look at what tells of a change without being asked."""
        self._monitoring.polled()
        self._guarding.polled()
        if self._mps.is_needed:
            self._triggers.pull(Reason.DAEMON)

    def _free_memory(self, uuid: str) -> int | None:
        usage = driver_usage.driver_usage(self._look)
        return None if usage is None else usage.free(uuid)
