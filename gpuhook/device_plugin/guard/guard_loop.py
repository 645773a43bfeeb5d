# SPDX-License-Identifier: Apache-2.0
"""The rounds of the guard: look, judge, act, and keep the marks.

A round blocks for as long as the driver takes, and runs in a thread; there is one at a time.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial

from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, TERMINATE
from gpuhook.device_plugin.guard import (
    guard_marks,
    guard_policy,
    guard_shares,
    guard_signal,
    ledger_limits,
    process_scope,
    sample_interval,
)
from gpuhook.device_plugin.guard.guard_marks import GuardWatching
from gpuhook.device_plugin.guard.guard_policy import Sight
from gpuhook.device_plugin.guard.usage_sample import Looking, SampleTarget
from gpuhook.device_plugin.metrics.unit_holders import Holdings
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Guard
    from gpuhook.device_plugin.guard.container_processes import About
    from gpuhook.device_plugin.guard.guard_policy import GuardMark, Order, User
    from gpuhook.device_plugin.guard.guard_shares import Holding, Key, LimitedUnit
    from gpuhook.device_plugin.guard.ledger_limits import Recorded
    from gpuhook.device_plugin.guard.usage_sample import SampleDriver, SampledUse, SampleKernel

_MOST_TOLD = 4096


@dataclass(frozen=True, slots=True)
class GuardQuestion:
    """What a round is about: whom to ask, who holds what, and which units are shares."""

    driver: SampleDriver | None
    holdings: Holdings = field(default_factory=Holdings)
    units: Mapping[str, LimitedUnit] = field(default_factory=dict)
    targets: Mapping[str, SampleTarget] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """What came of a round. Not `is_needed`: nobody holds what would have to be watched."""

    is_needed: bool = False
    is_near: bool = False  # somebody is near a limit, or above
    asks_kubelet: bool = False  # only the kubelet can tell whether somebody is to be watched
    began: tuple[GuardMark, ...] = ()
    ended: tuple[GuardMark, ...] = ()
    sent: tuple[Order, ...] = ()
    failed: tuple[tuple[Order, GpuhookError], ...] = ()
    strangers: tuple[Key, ...] = ()  # containers without a share, not told before
    of_host: tuple[tuple[str, User], ...] = ()  # (device, process), not told before
    trouble: GpuhookError | None = None  # why nothing can be watched
    unkept: str = ""  # why the marks were not written


class Watch:
    """Takes rounds. `settings` are asked when they are needed: None means that it is over."""

    def __init__(
        self,
        kernel: SampleKernel,
        settings: Callable[[], Guard | None],
        *,
        read: Callable[[], tuple[Recorded, ...]] = ledger_limits.read,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._read = read
        self._clock = clock
        self._now = now
        self._looking = Looking(kernel)
        self._marks: dict[Key, GuardMark] = {mark.share.key: mark for mark in guard_marks.read()}
        self._keeping = threading.Lock()
        self._written: tuple[GuardWatching, tuple[GuardMark, ...]] | None = None
        self._last: float | None = None  # when the last look was
        self._told: set[object] = set()

    @property
    def marks(self) -> tuple[GuardMark, ...]:
        """Return the containers that are above their limits."""
        return tuple(self._marks.values())

    def round(self, question: GuardQuestion) -> Round:
        """Take a round."""
        settings = self._settings()
        if settings is None:
            return Round()
        if settings.action == NO_ACTION:
            return replace(self._nobody(), ended=())  # they are only no longer watched
        entries = self._read()
        asks = guard_shares.depends_on_kubelet(entries)
        holding = guard_shares.holding(entries, question.holdings, question.units)
        return replace(self._taken(question, holding), asks_kubelet=asks)

    def _taken(self, question: GuardQuestion, holding: Holding) -> Round:
        if not holding.devices:
            return self._nobody()
        trouble = self._kernel.trouble()
        if trouble is not None or question.driver is None:
            self._last = None  # what happens now is not seen, and counts for nobody
            return Round(trouble=trouble, unkept=self.unseen())
        return self._looked(question, question.driver, holding)

    def unseen(self) -> str:
        """Take that nobody is watched for now; returns why that could not be written.

        Others may call it, too, while a round does not come to its end.
        """
        return self._keep(GuardWatching())

    def _nobody(self) -> Round:
        """Take that nobody is watched, so nobody is above a limit."""
        ended, self._marks, self._last = self.marks, {}, None
        return Round(ended=ended, unkept=self.unseen())

    def _looked(self, question: GuardQuestion, driver: SampleDriver, holding: Holding) -> Round:
        found = self._looking.look(driver, holding, question.targets, question.units)
        settings = self._settings()
        if settings is None or settings.action == NO_ACTION:  # meanwhile
            return Round()
        before, self._last = self._last, self._clock()
        elapsed = 0.0 if before is None else max(0.0, self._last - before)
        sight = Sight(found.shares, found.users, self._now(), elapsed)
        verdict = guard_policy.judged(self._marks, sight, settings)
        self._marks = dict(verdict.marks)
        whose = partial(process_scope.container, known=holding.known, homes=found.homes)
        sent, failed = self._act(verdict.orders, sight, driver, question.targets, whose)
        return Round(
            is_needed=True,
            is_near=bool(self._marks) or sample_interval.is_near(sight),
            began=verdict.began,
            ended=verdict.ended,
            sent=tuple(sent),
            failed=tuple(failed),
            strangers=tuple(one for one in found.strangers if self._is_news(one)),
            of_host=self._of_host(found),
            unkept=self._keep(_watching(settings, found)),
        )

    def _act(
        self,
        orders: Iterable[Order],
        sight: Sight,
        driver: SampleDriver,
        targets: Mapping[str, SampleTarget],
        whose: Callable[[About], str | None],
    ) -> tuple[list[Order], list[tuple[Order, GpuhookError]]]:
        sent: list[Order] = []
        failed: list[tuple[Order, GpuhookError]] = []
        for order in orders:
            device = order.share.device
            target = targets.get(device, SampleTarget(device, device))
            try:
                was_sent = guard_signal.carried_out(
                    order,
                    driver,
                    self._kernel,
                    target,
                    whose=whose,
                    is_wanted=partial(self._wants, order.signal),
                )
            except GpuhookError as error:
                failed.append((order, error))
                what = guard_policy.FAILED
            else:
                if not was_sent:
                    continue  # the next look sees what there is instead
                sent.append(order)
                what = order.signal
            self._marks = guard_policy.acted(self._marks, sight, order, what)
        return sent, failed

    def _wants(self, name: str) -> bool:
        settings = self._settings()
        wanted = (KILL,) if name == guard_policy.END else (TERMINATE, KILL)
        return settings is not None and settings.action in wanted

    def _of_host(self, found: SampledUse) -> tuple[tuple[str, User], ...]:
        return tuple(
            (device, user)
            for device, users in found.users.items()
            for user in users or ()
            if user.container is None and self._is_news((device, user.pid, user.started))
        )

    def _is_news(self, what: object) -> bool:
        if what in self._told:
            return False
        if len(self._told) >= _MOST_TOLD:
            self._told.clear()
        self._told.add(what)
        return True

    def _keep(self, watching: GuardWatching) -> str:
        """Write the marks and who is watched if they are others; returns why that failed."""
        with self._keeping:
            now = tuple(
                replace(mark, is_over=False, is_above=False) for mark in self._marks.values()
            )
            if (watching, now) == self._written:
                return ""
            try:
                guard_marks.write(now, watching)
            except OSError as error:
                return str(error)
            self._written = watching, now
            return ""


def _watching(settings: Guard, found: SampledUse) -> GuardWatching:
    """Return what is watched: shares of which driver and kernel tell who uses them."""
    told = {device for device, users in found.users.items() if users is not None}
    seen = [
        share
        for (container, device), share in sorted(found.shares.items())
        if device in told and container not in found.untold
    ]
    return GuardWatching(settings.action, tuple(seen))
