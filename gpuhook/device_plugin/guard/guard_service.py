# SPDX-License-Identifier: Apache-2.0
"""Runs the guard in the plugin: schedules its rounds, and reports their outcome.

It sleeps while there is no share to watch. It wakes after an Allocate, after a change of the
ledger, and after a change of the offer. A thread queries the driver, one query at a time, so that a
driver that hangs blocks nothing else. The modules of the guard are loaded when there is a share to
watch.
"""

from __future__ import annotations

import asyncio

from gpuhook.device_plugin import daemon_thread
from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, REPORT, TERMINATE
from gpuhook.device_plugin.guard import ledger_limits
from gpuhook.device_plugin.metrics import unit_holders
from gpuhook.device_plugin.metrics.unit_holders import Holdings
from gpuhook.device_plugin.node_snapshot import NodeSnapshot
from gpuhook.errors import GpuhookError, fault
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Guard
    from gpuhook.device_plugin.guard.guard_loop import GuardLoop, GuardRound
    from gpuhook.device_plugin.guard.guard_policy import GuardMark, Order
    from gpuhook.device_plugin.guard.guard_shares import LimitedUnit
    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.device_plugin.notifier import Notifier
    from gpuhook.device_plugin.offer.offered_devices import Resource

_ROUND_TIMEOUT = 30.0  # seconds, after which GH1887 is reported
_END_TIMEOUT = 1.0
_POLLS_AFTER_ALLOCATE = 3  # the kubelet lists the holder of a unit only some time after Allocate


class GuardService:
    """Schedules the guard. `pod_resources` is the kubelet's socket, `host_root` has /proc and /sys.

    If the node is not `is_this_machine`, but an inventory file, the guard does nothing.
    """

    def __init__(
        self,
        settings: Guard,
        pod_resources: str,
        notifier: Notifier,
        counters: Counters,
        *,
        host_root: str = "/",
        is_this_machine: bool = True,
    ) -> None:
        self._host_root = host_root
        self._settings = settings
        self._pod_resources = pod_resources
        self._notifier = notifier
        self._counters = counters
        self._is_this_machine = is_this_machine
        self._is_over = False
        self._snapshot = NodeSnapshot()
        self._units: Mapping[str, LimitedUnit] = {}
        self._resources: tuple[Resource, ...] = ()
        self._holdings = Holdings()
        self._is_stale = True  # the holdings
        self._needs_kubelet = True  # also without an offered unit that has a limit
        self._ledger = (0, 0)  # its version
        self._pending_polls = 0  # polls after Allocate that query the kubelet
        self._loop: GuardLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._wait: float | None = None  # until the next round; None: until woken
        self._reported: dict[str, str] = {}  # the last message of each kind of trouble

    def configure(self, settings: Guard) -> None:
        if settings != self._settings:
            self._settings = settings
            self._wake_up()

    def update(self, snapshot: NodeSnapshot, resources: tuple[Resource, ...]) -> None:
        """Watch the shares of these resources, on the devices of `snapshot`."""
        units: Mapping[str, LimitedUnit] = {}
        if any(resource.memory for resource in resources):
            from gpuhook.device_plugin.guard import guard_shares

            units = guard_shares.limited_units(resources)
        is_same = (
            snapshot is self._snapshot and units == self._units and resources == self._resources
        )
        self._snapshot, self._units, self._resources = snapshot, units, resources
        if self._task is None and self._is_this_machine:
            self._ledger = ledger_limits.version()
            self._task = asyncio.ensure_future(self._run())
        if not is_same:
            self._wake_up()

    def on_allocate(self) -> None:
        """Query the kubelet for the holders of newly allocated units."""
        self._pending_polls = _POLLS_AFTER_ALLOCATE
        self._wake_up()

    def on_poll(self) -> None:
        """Wake after a change of the ledger, or if the holdings may be incomplete."""
        self._is_stale = True
        version = ledger_limits.version()
        is_in_doubt = bool(self._pending_polls or (self._holdings.reason and self._units))
        self._pending_polls = max(0, self._pending_polls - 1)
        if version != self._ledger or (is_in_doubt and self._wait is None):
            self._ledger = version
            self._wake_up()

    async def end(self) -> None:
        """End the guard; it sends no signal afterwards."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=_END_TIMEOUT)
            self._clear_watched()

    def _wake_up(self) -> None:
        self._is_stale = True
        self._wake.set()

    async def _run(self) -> None:
        while True:
            if await self._sleep():
                self._wait = 0.0
            try:
                outcome = await self._round()
            except Exception as error:  # a bug must not end the guard
                self._report_once("failed", str(error), error)
                self._clear_watched()
                self._wait = self._settings.longest_interval
                continue
            if outcome is None:
                self._wait = None
                continue
            self._report(outcome)
            if outcome.needs_kubelet and not self._needs_kubelet and not self._units:
                self._needs_kubelet, self._is_stale, self._wait = True, True, 0.0
                continue
            self._needs_kubelet = outcome.needs_kubelet
            self._wait = self._next_wait(outcome)

    def _next_wait(self, outcome: GuardRound) -> float | None:
        from gpuhook.device_plugin.guard import guard_policy

        if not outcome.is_needed:
            return None
        before = self._wait or 0.0
        return guard_policy.interval(before, is_near=outcome.is_near, settings=self._settings)

    async def _sleep(self) -> bool:
        """Wait for the next round; returns whether an event has woken the guard."""
        try:
            await asyncio.wait_for(self._wake.wait(), self._wait)
        except asyncio.TimeoutError:  # another class before Python 3.11
            return False
        self._wake.clear()
        return True

    async def _round(self) -> GuardRound | None:
        """Run a round, however long the driver takes; None without a share to watch."""
        units, resources = self._units, self._resources
        snapshot, host_root = self._snapshot, self._host_root
        if not (units or self._needs_kubelet) or self._settings.action == NO_ACTION:
            self._holdings = Holdings()
        elif self._is_stale:
            self._is_stale = False
            self._holdings = await unit_holders.ask(self._pod_resources)
        holdings = self._holdings

        def run() -> GuardRound | None:
            if self._loop is None and not units and not ledger_limits.needs_guard():
                return None
            from gpuhook.device_plugin.guard import device_processes
            from gpuhook.device_plugin.guard.guard_loop import GuardInput

            readers = device_processes.readers(snapshot, host_root)
            targets = device_processes.targets(resources)
            known = device_processes.DeviceProcesses(readers, targets) if readers else None
            return self._guard_loop().round(GuardInput(known, holdings, units))

        running = daemon_thread.begin(run, "gpuhook-guard")
        await asyncio.wait({running}, timeout=_ROUND_TIMEOUT)
        if not running.done():
            late = fault("GH1887", seconds=f"{_ROUND_TIMEOUT:g}")
            self._report_once("late", late.message, late)
            self._clear_watched()
            await asyncio.wait({running})
        self._reported.pop("late", None)
        return running.result()

    def _clear_watched(self) -> None:
        """Store that no share is watched: `gpuhook ps` must not rely on an ended guard."""
        if self._loop is not None:
            self._report_once("unkept", self._loop.clear_watched())

    def _guard_loop(self) -> GuardLoop:
        if self._loop is None:
            from gpuhook.device_plugin.guard.container_processes import Processes
            from gpuhook.device_plugin.guard.guard_loop import GuardLoop

            self._loop = GuardLoop(Processes(), lambda: None if self._is_over else self._settings)
        return self._loop

    def _report(self, outcome: GuardRound) -> None:
        for mark in outcome.began:
            self._report_began(mark)
        for order in outcome.sent:
            self._report_signal(order)
        for order, error in outcome.failed:
            self._counters.count("guard_actions", "failed", order.share.resource)
            self._notifier.report_fault("NotEnded", error, order.share.container)
        for mark in outcome.ended:
            sentence = f"{mark.share.label} is no longer above its limit of {mark.share.device}"
            self._notifier.info("MemoryLimitKept", sentence, _key(mark), **_fields(mark))
        for container, device in outcome.strangers:
            self._notifier.log.info(
                "a container without a share uses a shared GPU", container=container, gpu=device
            )
        for container in outcome.unidentified:
            self._notifier.log.warning(
                "a memory limit is not watched: the container's cgroup has another name, and is"
                " shared or not readable (SYS_PTRACE)",
                container=container,
            )
        for device, user in outcome.of_host:
            self._notifier.log.debug(
                "a process on the host uses a shared GPU",
                pid=user.pid,
                gpu=device,
                bytes=user.memory,
            )
        trouble = outcome.trouble
        self._report_once("trouble", trouble.message if trouble else "", trouble)
        self._report_once("unkept", outcome.store_error)

    def _report_began(self, mark: GuardMark) -> None:
        share, settings = mark.share, self._settings
        self._counters.count("guard_actions", REPORT, share.resource)
        limit = _mebibytes(share.hard)
        above = f"its limit of {limit}" if share.is_certain else f"the {limit} of its units now"
        sentence = f"{share.label} uses {_mebibytes(mark.used)} of {share.device}, above {above}"
        if not share.is_certain:
            sentence += (
                "; its mounts show no grant: the process is older than the limit, or"
                " hides its mounts (chroot), so no process is killed"
            )
        elif settings.action in (TERMINATE, KILL):
            sentence += (
                f"; if this lasts for {settings.grace:g} seconds, one of its processes is killed"
            )
        self._notifier.warn("MemoryLimitExceeded", sentence, _key(mark), **_fields(mark))

    def _report_signal(self, order: Order) -> None:
        from gpuhook.device_plugin.guard.guard_policy import END

        share, user = order.share, order.user
        action = KILL if order.signal == END else TERMINATE
        self._counters.count("guard_actions", action, share.resource)
        sentence = f"{share.label} remains above its limit of {share.device}: {order.signal} for"
        sentence += f" process {user.pid}, which uses {_mebibytes(user.memory or 0)}"
        key = f"{share.container}/{share.device}/{user.pid}"
        facts = {"container": share.container, "gpu": share.device, "pid": user.pid}
        self._notifier.warn("ProcessEnded", sentence, key, **facts)

    def _report_once(self, kind: str, message: str, error: Exception | None = None) -> None:
        """Report a trouble unless it is the last reported one; "" for no trouble."""
        if message == self._reported.get(kind, ""):
            return
        self._reported[kind] = message
        if not message:
            return
        if isinstance(error, GpuhookError):
            self._notifier.report_fault("LimitsNotWatched", error)
        elif error is not None:
            self._notifier.log.error("the guard failed", exc_info=error)
        else:
            self._notifier.log.warning("the guard's marks were not stored", cause=message)


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
    return f"{amount // MIB} MiB"
