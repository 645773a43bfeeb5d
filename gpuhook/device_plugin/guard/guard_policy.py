# SPDX-License-Identifier: Apache-2.0
"""Who is above its limit, for how long, and what is to be done about it.

Pure: what a look has found and the marks of the look before give the marks of now, and orders.

A container is above its limit when its processes together use more than `tolerance` times it. It
is marked then, until it has not been above the limit itself for a few seconds: a process that ends
and comes back under another pid finds the mark of before. The clock of the grace is the mark's, and
runs while two looks one after the other see the container above; what nobody could see is not
counted. After the grace the process that uses most is to get SIGTERM, and the clock starts anew.
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

SETTLED = 5.0  # seconds below its limit, after which a container's mark goes; the grace if shorter
TERM, END, FAILED = signal.SIGTERM.name, signal.SIGKILL.name, ""  # what was sent; nothing could be


_MOST_SENT = 64  # that are remembered


@dataclass(frozen=True, slots=True)
class User:
    """A process that uses a device. `memory` in bytes; None: nobody knows, so it is not counted.

    `started` is in clock ticks since boot, and tells it from another one of the same pid.
    """

    pid: int
    started: int
    container: str | None  # the id; None: a process of the host
    memory: int | None


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look has found. `users` by device looked at, None: the driver could not tell.

    `elapsed` is how many seconds the look before is ago, `now` in seconds since 1970.
    """

    shares: Mapping[Key, GuardShare]
    users: Mapping[str, Sequence[User] | None]
    now: float
    elapsed: float = 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """A signal that a process got, and how many seconds ago that is."""

    pid: int
    started: int
    signal: str  # TERM, END or FAILED
    at: float  # seconds since 1970
    waited: float = 0.0

    def is_to(self, user: User) -> bool:
        """Return whether `user` is the process that got it."""
        return (self.pid, self.started) == (user.pid, user.started)


@dataclass(frozen=True, slots=True)
class GuardMark:
    """A container that is above its limit of a device.

    `spent` are the seconds of the grace that have gone by, `below` those since it came down, None
    while it is up. At the last look it was seen above its limit if `is_over`, and by more than is
    tolerated if `is_above`.
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
    """A signal that is to be sent to a process of the container that holds `share`."""

    share: GuardShare
    user: User
    signal: str


@dataclass(frozen=True, slots=True)
class GuardVerdict:
    """The marks of now, which of them are new and which have ended, and what is to be done."""

    marks: Mapping[Key, GuardMark] = field(default_factory=dict)
    began: tuple[GuardMark, ...] = ()
    ended: tuple[GuardMark, ...] = ()
    orders: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Sum:
    """What the processes of a container use together; not `is_whole` if some are not known."""

    used: int
    is_whole: bool


def used(users: Iterable[User]) -> Sum:
    """Return what processes use together."""
    amounts = [user.memory for user in users]
    return Sum(sum(one for one in amounts if one is not None), None not in amounts)


def of_container(sight: Sight, key: Key) -> list[User] | None:
    """Return a container's processes on a device, None where the driver could not tell."""
    container, device = key
    users = sight.users.get(device)
    return None if users is None else [user for user in users if user.container == container]


def judged(marks: Mapping[Key, GuardMark], sight: Sight, settings: Guard) -> GuardVerdict:
    """Return what follows from a look."""
    found: dict[Key, GuardMark] = {}
    began: list[GuardMark] = []
    ended: list[GuardMark] = []
    orders: list[Order] = []
    for key in dict.fromkeys((*sight.shares, *marks)):
        before = marks.get(key)
        if key[1] not in sight.users:  # nobody holds a share of it any more
            ended += [before] if before else []
            continue
        share = sight.shares.get(key)
        mark = _mark(before, share, of_container(sight, key), sight, settings)
        if mark is None:
            if before is not None:
                ended.append(before)
            continue
        found[key] = mark
        if before is None:
            began.append(mark)
        order = _order(mark, of_container(sight, key) or [], settings) if share else None
        # One at a time: the end of one process may be enough on all devices of its container.
        if order is not None and all(key[0] != other.share.container for other in orders):
            orders.append(order)
    return GuardVerdict(found, tuple(began), tuple(ended), tuple(orders))


def _mark(
    before: GuardMark | None,
    share: GuardShare | None,
    users: list[User] | None,
    sight: Sight,
    settings: Guard,
) -> GuardMark | None:
    """Return the mark of a container now; one that no longer holds its share uses none of it."""
    share_now = share or (before.share if before else None)
    if share_now is None:
        return None
    if users is None:
        return _unseen(before, share_now, sight)
    total = used(users) if share else Sum(0, is_whole=True)
    if total.used > share_now.hard * settings.tolerance:
        return _above(before, share_now, total.used, sight, settings)
    if total.is_whole:
        return _not_above(before, share_now, total.used, sight, settings)
    return _unseen(before, share_now, sight)


def _unseen(before: GuardMark | None, share: GuardShare, sight: Sight) -> GuardMark | None:
    return before and replace(_aged(before, sight), share=share, is_over=False, is_above=False)


def _above(
    before: GuardMark | None, share: GuardShare, total: int, sight: Sight, settings: Guard
) -> GuardMark:
    if before is None:
        return GuardMark(share, total, sight.now, is_over=True, is_above=True)
    # A look that came late has not seen what was in between.
    counted = min(sight.elapsed, 2 * settings.longest_interval) if before.is_above else 0.0
    spent = before.spent + counted
    aged = _aged(before, sight)
    return replace(
        aged, share=share, used=total, spent=spent, below=None, is_over=True, is_above=True
    )


def _not_above(
    before: GuardMark | None, share: GuardShare, total: int, sight: Sight, settings: Guard
) -> GuardMark | None:
    """Return the mark of a container that uses no more than is tolerated, None if it has ended."""
    if before is None:
        return None
    aged = replace(_aged(before, sight), share=share, used=total, is_over=False, is_above=False)
    if total > share.hard:
        return replace(aged, below=None, is_over=True)
    below = 0.0 if before.below is None else before.below + sight.elapsed
    return None if below >= min(SETTLED, settings.grace) else replace(aged, below=below)


def _aged(mark: GuardMark, sight: Sight) -> GuardMark:
    sent = tuple(replace(one, waited=one.waited + sight.elapsed) for one in mark.sent)
    return replace(mark, sent=sent)


def _order(mark: GuardMark, users: list[User], settings: Guard) -> Order | None:
    """Return what is to be done about a marked container now, if anything."""
    acts = settings.action in (TERMINATE, KILL) and mark.share.is_certain
    if not acts or not mark.is_over:
        return None
    kills = settings.action == KILL
    waiting = _waiting(mark, users) if kills else None
    if waiting is not None:
        asked, user = waiting
        return Order(mark.share, user, END) if asked.waited >= settings.kill_after else None
    if not mark.is_above or mark.spent < settings.grace:
        return None
    done = [one for one in mark.sent if not kills or one.signal in (END, FAILED)]
    left = [user for user in users if user.memory and not any(one.is_to(user) for one in done)]
    if not left:
        return None
    return Order(mark.share, max(left, key=lambda user: (user.memory or 0, -user.pid)), TERM)


def _waiting(mark: GuardMark, users: list[User]) -> tuple[Sent, User] | None:
    """Return the process that was asked to end last and has not, while it uses the device."""
    last = mark.sent[-1] if mark.sent else None
    if last is None or last.signal != TERM:
        return None
    return next(((last, user) for user in users if last.is_to(user)), None)


def acted(
    marks: Mapping[Key, GuardMark], sight: Sight, order: Order, sent: str
) -> dict[Key, GuardMark]:
    """Return the marks after an order was carried out; `sent` FAILED: it may not be, ever.

    The process gives up all of its devices, so the clocks of all of them start anew.
    """
    user = order.user
    done = Sent(user.pid, user.started, sent, sight.now)
    found = dict(marks)
    for key, mark in marks.items():
        if key[0] == user.container and any(map(done.is_to, of_container(sight, key) or ())):
            found[key] = replace(mark, spent=0.0, sent=(*mark.sent, done)[-_MOST_SENT:])
    return found
