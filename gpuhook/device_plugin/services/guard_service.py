# SPDX-License-Identifier: Apache-2.0
"""The guard as the plugin keeps it: when it looks, whom it asks, and what people hear of it.

It sleeps while nobody holds a share that it would have to watch, and wakes when a container was
answered, when the ledger has changed, and when something else is on offer. The driver is asked in a
thread, one question at a time: one that hangs stops nothing. What it takes to watch is loaded when
there is somebody to watch.
"""

from __future__ import annotations

import asyncio

from gpuhook.device_plugin import daemon_thread, driver_usage
from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, REPORT, TERMINATE
from gpuhook.device_plugin.guard import guard_need, ledger_limits
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.metrics.unit_holders import Holdings
from gpuhook.device_plugin.node_snapshot import Look
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Guard
    from gpuhook.device_plugin.guard.guard_loop import Round, Watch
    from gpuhook.device_plugin.guard.guard_policy import GuardMark, Order
    from gpuhook.device_plugin.guard.guard_shares import LimitedUnit
    from gpuhook.device_plugin.metrics.counters import Observations
    from gpuhook.device_plugin.notifier import News
    from gpuhook.device_plugin.offer.offered_devices import Resource

_ANSWERS_WITHIN = 30.0  # seconds, after which people hear of it
_ENDS_WITHIN = 1.0
_POLLS_AFTER = 3  # of the plugin, after Allocate: the kubelet tells who holds what only later
_MIB = 1 << 20


class Guarding:
    """Keeps the guard. `pod_resources` is the socket that tells who holds what.

    Unless it `keeps` the marks, it does nothing: what a dump tells is not of this machine.
    """

    def __init__(
        self,
        settings: Guard,
        pod_resources: str,
        news: News,
        observations: Observations,
        *,
        keeps: bool = True,
    ) -> None:
        self._settings = settings
        self._pod_resources = pod_resources
        self._news = news
        self._observations = observations
        self._keeps = keeps
        self._is_over = False
        self._look = Look()
        self._units: Mapping[str, LimitedUnit] = {}
        self._resources: tuple[Resource, ...] = ()
        self._holdings = Holdings()
        self._is_stale = True  # what the kubelet has told
        self._asks = True  # the kubelet, though nothing that is offered has a limit
        self._ledger = (0, 0)  # its version
        self._expecting = 0  # polls of the plugin that ask the kubelet who has been given a unit
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._wait: float | None = None  # for the next look, None: until somebody wakes it
        self._told: dict[str, str] = {}  # troubles, by what they are of

    def configured(self, settings: Guard) -> None:
        """Go by these settings from now on."""
        if settings != self._settings:
            self._settings = settings
            self._awake()

    def offered(self, look: Look, resources: tuple[Resource, ...]) -> None:
        """Watch the shares of these resources, and the devices that `look` has seen."""
        units: Mapping[str, LimitedUnit] = {}
        if any(resource.memory for resource in resources):
            from gpuhook.device_plugin.guard import guard_shares

            units = guard_shares.limited_units(resources)
        is_same = look is self._look and units == self._units and resources == self._resources
        self._look, self._units, self._resources = look, units, resources
        if self._task is None and self._keeps:
            self._ledger = ledger_limits.version()
            self._task = asyncio.ensure_future(self._keep())
        if not is_same:
            self._awake()

    def allocated(self) -> None:
        """Take that containers were answered."""
        self._expecting = _POLLS_AFTER
        self._awake()

    def polled(self) -> None:
        """Look whether the ledger has changed, and have the kubelet asked again."""
        self._is_stale = True
        version = ledger_limits.version()
        is_in_doubt = bool(self._expecting or (self._holdings.reason and self._units))
        self._expecting = max(0, self._expecting - 1)
        if version != self._ledger or (is_in_doubt and self._wait is None):
            self._ledger = version
            self._awake()

    async def end(self) -> None:
        """End; no signal is sent after that."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_ENDS_WITHIN)
            self._unseen()

    def _awake(self) -> None:
        self._is_stale = True
        self._wake.set()

    async def _keep(self) -> None:
        """Take a round whenever it is time for one."""
        while True:
            if await self._woken():
                self._wait = 0.0
            try:
                taken = await self._taken()
            except Exception as error:  # a fault of ours ends the round, not the guard
                self._once("failed", str(error), error)
                self._unseen()
                self._wait = self._settings.longest_interval
                continue
            if taken is None:
                self._wait = None
                continue
            self._tell(taken)
            if taken.asks_kubelet and not self._asks and not self._units:
                self._asks, self._is_stale, self._wait = True, True, 0.0
                continue
            self._asks = taken.asks_kubelet
            self._wait = self._next_wait(taken)

    def _next_wait(self, taken: Round) -> float | None:
        from gpuhook.device_plugin.guard import sample_interval

        if not taken.is_needed:
            return None
        before = self._wait or 0.0
        return sample_interval.interval(before, is_near=taken.is_near, settings=self._settings)

    async def _woken(self) -> bool:
        """Wait until it is time; returns whether somebody has woken the guard."""
        try:
            await asyncio.wait_for(self._wake.wait(), self._wait)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return False
        self._wake.clear()
        return True

    async def _taken(self) -> Round | None:
        """Take a round, for as long as the driver takes; None where there is nobody to watch."""
        units, resources, driver = (
            self._units,
            self._resources,
            driver_usage.driver_usage(self._look),
        )
        if not (units or self._asks) or self._settings.action == NO_ACTION:
            self._holdings = Holdings()
        elif self._is_stale:
            self._is_stale = False
            self._holdings = await unit_holders.ask(socket=self._pod_resources)
        holdings = self._holdings

        def take() -> Round | None:
            if self._watch is None and not units and not guard_need.is_needed():
                return None
            from gpuhook.device_plugin.guard import usage_sample
            from gpuhook.device_plugin.guard.guard_loop import GuardQuestion

            question = GuardQuestion(driver, holdings, units, usage_sample.targets(resources))
            return self._watching().round(question)

        taking = daemon_thread.begin(take, "gpuhook-guard")
        taking.add_done_callback(_forgotten)
        await asyncio.wait({taking}, timeout=_ANSWERS_WITHIN)
        if not taking.done():
            late = fault("GH1887", seconds=f"{_ANSWERS_WITHIN:g}")
            self._once("late", late.message, late)
            self._unseen()
            await asyncio.wait({taking})
        self._told.pop("late", None)
        return taking.result()

    def _unseen(self) -> None:
        """Have it written that nobody is watched; what a dead plugin wrote counts for nobody."""
        if self._watch is not None:
            self._once("unkept", self._watch.unseen())

    def _watching(self) -> Watch:
        if self._watch is None:
            from gpuhook.device_plugin.guard.container_processes import Processes
            from gpuhook.device_plugin.guard.guard_loop import Watch

            self._watch = Watch(Processes(), lambda: None if self._is_over else self._settings)
        return self._watch

    def _tell(self, taken: Round) -> None:
        for mark in taken.began:
            self._began(mark)
        for order in taken.sent:
            self._sent(order)
        for order, error in taken.failed:
            self._observations.guarded("failed", order.share.resource)
            self._news.failed("NotEnded", error, order.share.container)
        for mark in taken.ended:
            self._ended(mark)
        for container, device in taken.strangers:
            self._news.log.info(
                "a container without a share uses a shared GPU", container=container, gpu=device
            )
        for device, user in taken.of_host:
            self._news.log.debug(
                "a process of the host uses a shared GPU",
                pid=user.pid,
                gpu=device,
                bytes=user.memory,
            )
        trouble = taken.trouble
        self._once("trouble", trouble.message if trouble else "", trouble)
        self._once("unkept", taken.unkept)

    def _began(self, mark: GuardMark) -> None:
        share, settings = mark.share, self._settings
        self._observations.guarded(REPORT, share.resource)
        limit = _mebibytes(share.hard)
        above = f"its limit of {limit}" if share.is_certain else f"the {limit} of its units now"
        sentence = f"{share.label} uses {_mebibytes(mark.used)} of {share.device}, above {above}"
        if not share.is_certain:
            sentence += (
                "; it shows no grant of that: it is older than the limit, or hides its mounts"
                " (chroot), so nothing is ended"
            )
        elif settings.action in (TERMINATE, KILL):
            sentence += f"; if it stays so for {settings.grace:g} seconds, a process of it is ended"
        self._news.bad("MemoryLimitExceeded", sentence, _key(mark), **_fields(mark))

    def _sent(self, order: Order) -> None:
        from gpuhook.device_plugin.guard.guard_policy import END

        share, user = order.share, order.user
        self._observations.guarded(KILL if order.signal == END else TERMINATE, share.resource)
        sentence = f"{share.label} stays above its limit of {share.device}: {order.signal} for"
        sentence += f" process {user.pid}, which uses {_mebibytes(user.memory or 0)}"
        key = f"{share.container}/{share.device}/{user.pid}"
        container, gpu = share.container, share.device
        self._news.bad("ProcessEnded", sentence, key, container=container, gpu=gpu, pid=user.pid)

    def _ended(self, mark: GuardMark) -> None:
        sentence = f"{mark.share.label} is no longer above its limit of {mark.share.device}"
        self._news.good("MemoryLimitKept", sentence, _key(mark), **_fields(mark))

    def _once(self, what: str, message: str, error: Exception | None = None) -> None:
        """Tell a trouble unless it is the one that was told last; "" is none."""
        from gpuhook.errors import GpuhookError

        if message == self._told.get(what, ""):
            return
        self._told[what] = message
        if not message:
            return
        if isinstance(error, GpuhookError):
            self._news.failed("LimitsNotWatched", error)
        elif error is not None:
            self._news.log.error("the guard failed", exc_info=error)
        else:
            self._news.log.warning("the guard's marks were not kept", cause=message)


def _key(mark: GuardMark) -> str:
    return f"{mark.share.container}/{mark.share.device}"


def _fields(mark: GuardMark) -> dict[str, object]:
    share = mark.share
    return {
        "container": share.container,
        "gpu": share.device,
        "used": mark.used,
        "limit": share.hard,
    }


def _mebibytes(amount: int) -> str:
    return f"{amount // _MIB} MiB"


def _forgotten(taking: asyncio.Future[Round | None]) -> None:
    """Take note of how a round ended that nobody waits for any more."""
    if not taking.cancelled():
        taking.exception()
