# SPDX-License-Identifier: Apache-2.0
"""The rounds of the guard: sample, decide, send signals, store the marks.

A round blocks for as long as the driver takes, and runs in a thread, one at a time.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial

from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, TERMINATE
from gpuhook.device_plugin.guard import (
    guard_marks,
    guard_policy,
    guard_shares,
    ledger_limits,
)
from gpuhook.device_plugin.guard.container_processes import process_container
from gpuhook.device_plugin.guard.guard_policy import GuardSample
from gpuhook.device_plugin.guard.usage_sample import UsageSampler
from gpuhook.device_plugin.metrics.unit_holders import Holdings
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuhook.device_plugin.config.gpuhook_section import Guard
    from gpuhook.device_plugin.guard.container_processes import Processes, ProcessFacts
    from gpuhook.device_plugin.guard.device_processes import DeviceProcesses
    from gpuhook.device_plugin.guard.guard_policy import GuardMark, Order, User
    from gpuhook.device_plugin.guard.guard_shares import GuardShare, Holding, Key, LimitedUnit
    from gpuhook.device_plugin.guard.ledger_limits import LedgerLimits
    from gpuhook.device_plugin.guard.usage_sample import SampledUse

_MAX_REPORTED = 4096


@dataclass(frozen=True, slots=True)
class GuardInput:
    """The input of a round: the processes, the holders of units, and the units with limits."""

    driver: DeviceProcesses | None
    holdings: Holdings = field(default_factory=Holdings)
    units: Mapping[str, LimitedUnit] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GuardRound:
    """The outcome of a round. `is_needed` is false without any share to watch."""

    is_needed: bool = False
    is_near: bool = False  # a container is near a limit, or above
    needs_kubelet: bool = False  # only the kubelet knows whether a container must be watched
    began: tuple[GuardMark, ...] = ()
    ended: tuple[GuardMark, ...] = ()
    sent: tuple[Order, ...] = ()
    failed: tuple[tuple[Order, GpuhookError], ...] = ()
    strangers: tuple[Key, ...] = ()  # containers without a share, not reported before
    of_host: tuple[tuple[str, User], ...] = ()  # (device, process), not reported before
    # Containers whose shares are not watched, not reported before.
    unidentified: tuple[str, ...] = ()
    trouble: GpuhookError | None = None  # why nothing can be watched
    store_error: str = ""  # why the marks were not stored


class GuardLoop:
    """Runs rounds. `settings` is called when needed; it returns None after the end."""

    def __init__(
        self,
        kernel: Processes,
        settings: Callable[[], Guard | None],
        *,
        read: Callable[[], tuple[LedgerLimits, ...]] = ledger_limits.read,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kernel = kernel
        self._settings = settings
        self._read = read
        self._clock = clock
        self._now = now
        self._sampler = UsageSampler(kernel)
        self._marks: dict[Key, GuardMark] = {mark.share.key: mark for mark in guard_marks.read()}
        self._store_lock = threading.Lock()
        self._written: tuple[str, tuple[GuardShare, ...], tuple[GuardMark, ...]] | None = None
        self._last: float | None = None  # the time of the last sample
        self._reported: set[object] = set()

    @property
    def marks(self) -> tuple[GuardMark, ...]:
        return tuple(self._marks.values())

    def round(self, inputs: GuardInput) -> GuardRound:
        settings = self._settings()
        if settings is None:
            return GuardRound()
        if settings.action == NO_ACTION:
            return replace(self._without_shares(), ended=())  # still above, but no longer watched
        entries = self._read()
        needs_kubelet = guard_shares.depends_on_kubelet(entries)
        holding = guard_shares.holding(entries, inputs.holdings, inputs.units)
        return replace(self._run(inputs, holding), needs_kubelet=needs_kubelet)

    def _run(self, inputs: GuardInput, holding: Holding) -> GuardRound:
        if not holding.devices:
            return self._without_shares()
        trouble = self._kernel.trouble()
        if trouble is not None or inputs.driver is None:
            self._last = None  # time without samples is not counted
            return GuardRound(trouble=trouble, store_error=self.clear_watched())
        return self._act_on_sample(inputs, inputs.driver, holding)

    def clear_watched(self) -> str:
        """Store that no share is watched; returns the error of the file.

        It may be called from another thread while a round hangs.
        """
        return self._store(NO_ACTION, ())

    def _without_shares(self) -> GuardRound:
        """End all marks, since no share must be watched."""
        ended, self._marks, self._last = self.marks, {}, None
        return GuardRound(ended=ended, store_error=self.clear_watched())

    def _act_on_sample(
        self, inputs: GuardInput, driver: DeviceProcesses, holding: Holding
    ) -> GuardRound:
        use = self._sampler.sample(driver, holding, inputs.units)
        settings = self._settings()
        if settings is None or settings.action == NO_ACTION:  # it has changed meanwhile
            return GuardRound()
        before, self._last = self._last, self._clock()
        elapsed = 0.0 if before is None else max(0.0, self._last - before)
        sample = GuardSample(use.shares, use.users, self._now(), elapsed)
        verdict = guard_policy.guard_verdict(self._marks, sample, settings)
        self._marks = dict(verdict.marks)
        whose = partial(process_container, known=holding.known, scopes=use.scopes)
        sent, failed = self._act(verdict.orders, sample, driver.memory, whose)
        unwatched = sorted(use.unidentified.intersection(container for container, _ in use.shares))
        return GuardRound(
            is_needed=True,
            is_near=bool(self._marks) or guard_policy.is_near(sample),
            began=verdict.began,
            ended=verdict.ended,
            sent=tuple(sent),
            failed=tuple(failed),
            strangers=tuple(one for one in use.strangers if self._is_first(one)),
            of_host=self._of_host(use),
            unidentified=tuple(one for one in unwatched if self._is_first(one)),
            store_error=self._store(settings.action, _watched(use)),
        )

    def _act(
        self,
        orders: Iterable[Order],
        sample: GuardSample,
        users: Callable[[str], Mapping[int, int | None] | None],
        whose: Callable[[ProcessFacts], str | None],
    ) -> tuple[list[Order], list[tuple[Order, GpuhookError]]]:
        sent: list[Order] = []
        failed: list[tuple[Order, GpuhookError]] = []
        for order in orders:
            try:
                was_sent = send_signal(
                    order,
                    self._kernel,
                    users=partial(users, order.share.device),
                    whose=whose,
                    is_allowed=partial(self._allows, order.signal),
                )
            except GpuhookError as error:
                failed.append((order, error))
                what = guard_policy.FAILED
            else:
                if not was_sent:
                    continue  # the next sample decides again
                sent.append(order)
                what = order.signal
            self._marks = guard_policy.marks_after_signal(self._marks, sample, order, what)
        return sent, failed

    def _allows(self, name: str) -> bool:
        settings = self._settings()
        actions = (KILL,) if name == guard_policy.END else (TERMINATE, KILL)
        return settings is not None and settings.action in actions

    def _of_host(self, use: SampledUse) -> tuple[tuple[str, User], ...]:
        return tuple(
            (device, user)
            for device, users in use.users.items()
            for user in users or ()
            if user.container is None and self._is_first((device, user.pid, user.started))
        )

    def _is_first(self, what: object) -> bool:
        if what in self._reported:
            return False
        if len(self._reported) >= _MAX_REPORTED:
            self._reported.clear()
        self._reported.add(what)
        return True

    def _store(self, action: str, shares: tuple[GuardShare, ...]) -> str:
        """Store changed marks and watched shares; returns the error of the file."""
        with self._store_lock:
            marks = tuple(
                replace(mark, is_over=False, is_above=False) for mark in self._marks.values()
            )
            if (action, shares, marks) == self._written:
                return ""
            try:
                guard_marks.write(marks, action, shares)
            except OSError as error:
                return str(error)
            self._written = action, shares, marks
            return ""


def _watched(use: SampledUse) -> tuple[GuardShare, ...]:
    """Return the watched shares: those whose processes the driver and /proc identify."""
    reported = {device for device, users in use.users.items() if users is not None}
    return tuple(
        share
        for (container, device), share in sorted(use.shares.items())
        if device in reported and container not in use.unidentified
    )


def send_signal(
    order: Order,
    kernel: Processes,
    *,
    users: Callable[[], Mapping[int, int | None] | None],
    whose: Callable[[ProcessFacts], str | None],
    is_allowed: Callable[[], bool],
) -> bool:
    """Send the signal of an order to its process, and return whether it was sent. Raises GH1886.

    Since the sample the process may have exited, its pid may have been reused, it may have changed
    its cgroup, or it may have released the device. So all of it is checked again while a pidfd
    holds the process. `users` returns the bytes of the processes on the device, None if unknown,
    `whose` the container of a process. `is_allowed` is called last, since the configuration may
    have changed.
    """
    user = order.user
    if user.pid in (0, 1, os.getpid(), os.getppid()) or user.container != order.share.container:
        return False

    def is_still() -> bool:
        try:
            listed = users()
        except GpuhookError:
            return False
        if listed is None or not listed.get(user.pid):
            return False
        about = kernel.about(user.pid)
        if about is None or about.started != user.started:
            return False
        return whose(about) == user.container and is_allowed()

    return kernel.send(user.pid, order.signal, is_still)
