# SPDX-License-Identifier: Apache-2.0
"""Decides which containers are above their limit, and which process gets a signal.

Pure: a sample and the previous marks result in new marks and orders.

A container is above its limit when its processes together use more than `tolerance` times the
limit. It is then marked until it has been below the limit for a few seconds, so that a process that
ends and restarts under another pid does not reset the mark. The grace period belongs to the mark,
and runs while two consecutive samples show the container above; time without samples is not
counted. After the grace period the process that uses most gets SIGTERM, and the period starts
again.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace

from gpuhook.device_plugin.config.gpuhook_section import KILL, TERMINATE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gpuhook.device_plugin.config.gpuhook_section import Guard
    from gpuhook.device_plugin.guard.guard_shares import GuardShare, Key

SETTLED = 5.0  # seconds below the limit that end a mark; the grace period if shorter
# The signal that was sent; FAILED: no permission.
TERM, END, FAILED = signal.SIGTERM.name, signal.SIGKILL.name, ""
_MAX_SENT = 64  # of a mark
NEAR = 0.8  # of a limit
_MIN_INTERVAL = 0.05  # seconds


@dataclass(frozen=True, slots=True)
class User:
    """A process that uses a device. `memory` is in bytes; None: unknown, and not counted.

    `started`, in clock ticks since boot, distinguishes processes with the same pid.
    """

    pid: int
    started: int
    container: str | None  # the id; None: a process on the host
    memory: int | None
    in_pod: bool = False  # the container is one of a pod


@dataclass(frozen=True, slots=True)
class GuardSample:
    """One sample. `users` are by sampled device; None: the driver does not report them.

    `elapsed` is the time since the previous sample in seconds, `now` in seconds since 1970.
    """

    shares: Mapping[Key, GuardShare]
    users: Mapping[str, Sequence[User] | None]
    now: float
    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal that a process got; `waited` is the time since, in seconds."""

    pid: int
    started: int
    signal: str  # TERM, END or FAILED
    at: float  # seconds since 1970
    waited: float = 0.0

    def is_to(self, user: User) -> bool:
        return (self.pid, self.started) == (user.pid, user.started)


@dataclass(frozen=True, slots=True)
class GuardMark:
    """A container above its limit of a device.

    `spent` is the used part of the grace period, `below` the time below the limit, None while above
    it; both in seconds. `is_over`: the last sample was above the limit; `is_above`: above the
    tolerance.
    """

    share: GuardShare
    used: int
    since: float  # seconds since 1970
    spent: float = 0.0
    below: float | None = None
    is_over: bool = False
    is_above: bool = False
    sent: tuple[Sent, ...] = ()


@dataclass(frozen=True, slots=True)
class Order:
    """A signal for a process of the container that holds `share`."""

    share: GuardShare
    user: User
    signal: str


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The current marks, the new and the ended ones, and orders to send signals."""

    marks: Mapping[Key, GuardMark] = field(default_factory=dict)
    began: tuple[GuardMark, ...] = ()
    ended: tuple[GuardMark, ...] = ()
    orders: tuple[Order, ...] = ()


def _memory_used(users: Iterable[User]) -> int:
    return sum(user.memory or 0 for user in users)


def container_users(sample: GuardSample, key: Key) -> list[User] | None:
    """Return a container's processes on a device, None if the driver does not report them."""
    container, device = key
    users = sample.users.get(device)
    return None if users is None else [user for user in users if user.container == container]


def guard_verdict(
    marks: Mapping[Key, GuardMark], sample: GuardSample, settings: Guard
) -> GuardVerdict:
    current: dict[Key, GuardMark] = {}
    began: list[GuardMark] = []
    ended: list[GuardMark] = []
    orders: list[Order] = []
    for key in dict.fromkeys((*sample.shares, *marks)):
        before = marks.get(key)
        if key[1] not in sample.users:  # no container holds a share of it any more
            ended += [before] if before else []
            continue
        share = sample.shares.get(key)
        mark = _mark(before, share, container_users(sample, key), sample, settings)
        if mark is None:
            ended += [before] if before else []
            continue
        current[key] = mark
        if before is None:
            began.append(mark)
        order = _order(mark, container_users(sample, key) or [], settings) if share else None
        # One at a time: the end of one process may suffice for all devices of its container.
        if order is not None and all(key[0] != other.share.container for other in orders):
            orders.append(order)
    return GuardVerdict(current, tuple(began), tuple(ended), tuple(orders))


def _mark(
    before: GuardMark | None,
    share: GuardShare | None,
    users: list[User] | None,
    sample: GuardSample,
    settings: Guard,
) -> GuardMark | None:
    """Return the new mark of a container; without a share it uses no memory of the device."""
    share_now = share or (before.share if before else None)
    if share_now is None:
        return None
    if users is None:
        return _without_sample(before, share_now, sample)
    counted = users if share else []
    total = _memory_used(counted)
    if total > share_now.hard * settings.tolerance:
        return _above(before, share_now, total, sample, settings)
    if any(user.memory is None for user in counted):
        return _without_sample(before, share_now, sample)
    return _not_above(before, share_now, total, sample, settings)


def _without_sample(
    before: GuardMark | None, share: GuardShare, sample: GuardSample
) -> GuardMark | None:
    return before and replace(_aged(before, sample), share=share, is_over=False, is_above=False)


def _above(
    before: GuardMark | None, share: GuardShare, total: int, sample: GuardSample, settings: Guard
) -> GuardMark:
    if before is None:
        return GuardMark(share, total, sample.now, is_over=True, is_above=True)
    # A late sample does not cover the time since the previous one.
    counted = min(sample.elapsed, 2 * settings.longest_interval) if before.is_above else 0.0
    spent = before.spent + counted
    aged = _aged(before, sample)
    return replace(
        aged, share=share, used=total, spent=spent, below=None, is_over=True, is_above=True
    )


def _not_above(
    before: GuardMark | None, share: GuardShare, total: int, sample: GuardSample, settings: Guard
) -> GuardMark | None:
    """Return the mark of a container within the tolerance, None if the mark ends."""
    if before is None:
        return None
    aged = replace(_aged(before, sample), share=share, used=total, is_over=False, is_above=False)
    if total > share.hard:
        return replace(aged, below=None, is_over=True)
    below = 0.0 if before.below is None else before.below + sample.elapsed
    return None if below >= min(SETTLED, settings.grace) else replace(aged, below=below)


def _aged(mark: GuardMark, sample: GuardSample) -> GuardMark:
    sent = tuple(replace(one, waited=one.waited + sample.elapsed) for one in mark.sent)
    return replace(mark, sent=sent)


def _order(mark: GuardMark, users: list[User], settings: Guard) -> Order | None:
    """Return the next signal for a marked container, if one is due."""
    acts = settings.action in (TERMINATE, KILL) and mark.share.is_certain
    if not acts or not mark.is_over:
        return None
    kills = settings.action == KILL
    waiting = _waiting(mark, users) if kills else None
    if waiting is not None:
        sent, user = waiting
        return Order(mark.share, user, END) if sent.waited >= settings.kill_after else None
    if not mark.is_above or mark.spent < settings.grace:
        return None
    done = [one for one in mark.sent if not kills or one.signal in (END, FAILED)]
    left = [user for user in users if user.memory and not any(one.is_to(user) for one in done)]
    if not left:
        return None
    return Order(mark.share, max(left, key=lambda user: (user.memory or 0, -user.pid)), TERM)


def _waiting(mark: GuardMark, users: list[User]) -> tuple[Sent, User] | None:
    """Return the process that got the last SIGTERM, if it still uses the device."""
    last = mark.sent[-1] if mark.sent else None
    if last is None or last.signal != TERM:
        return None
    return next(((last, user) for user in users if last.is_to(user)), None)


def marks_after_signal(
    marks: Mapping[Key, GuardMark], sample: GuardSample, order: Order, sent: str
) -> dict[Key, GuardMark]:
    """Return the marks after an order; `sent` is the signal, FAILED without permission.

    The end of a process releases all of its devices, so all of their grace periods start again.
    """
    user = order.user
    done = Sent(user.pid, user.started, sent, sample.now)
    current = dict(marks)
    for key, mark in marks.items():
        if key[0] == user.container and any(map(done.is_to, container_users(sample, key) or ())):
            current[key] = replace(mark, spent=0.0, sent=(*mark.sent, done)[-_MAX_SENT:])
    return current


def is_near(sample: GuardSample) -> bool:
    """Return whether any container uses much of its limit."""
    return any(
        _memory_used(container_users(sample, key) or ()) >= share.hard * NEAR
        for key, share in sample.shares.items()
    )


def interval(before: float, *, is_near: bool, settings: Guard) -> float:
    """Return the seconds until the next sample: short near a limit, else doubled.

    `before` is the previous interval, 0 for a new container.

    >>> from gpuhook.device_plugin.config.gpuhook_section import Guard
    >>> interval(2.0, is_near=False, settings=Guard())
    4.0
    """
    shortest = max(_MIN_INTERVAL, settings.shortest_interval)
    longest = max(shortest, settings.longest_interval)
    return shortest if is_near else min(max(before * 2, shortest), longest)
