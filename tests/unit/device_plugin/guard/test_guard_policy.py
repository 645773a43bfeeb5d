# SPDX-License-Identifier: Apache-2.0
"""Who is above its limit, for how long, and what the guard does about it."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.device_plugin.config.gpuhook_section import KILL, NO_ACTION, REPORT, TERMINATE, Guard
from gpuhook.device_plugin.guard import guard_policy
from gpuhook.device_plugin.guard.guard_policy import (
    END,
    FAILED,
    SETTLED,
    TERM,
    GuardMark,
    GuardSample,
    GuardVerdict,
    Order,
    User,
)
from gpuhook.device_plugin.guard.guard_shares import GuardShare, Key

GIB = 1 << 30
GPU = "GPU-1"
SHARE = GuardShare("c" * 64, ("default", "web", "main"), GPU, 4 * GIB, "nvidia.com/gpu")
SETTINGS = Guard(action=TERMINATE, grace=30.0)


def user(pid: int, memory: float | None, container: str | None = SHARE.container) -> User:
    return User(pid, pid * 10, container, None if memory is None else int(memory * GIB))


class Looks:
    """A series of samples, ten seconds apart by default."""

    def __init__(self, settings: Guard = SETTINGS, share: GuardShare = SHARE) -> None:
        self.settings, self.share = settings, share
        self.marks: dict[Key, GuardMark] = {}
        self.now = 1000.0

    def see(self, *users: User, elapsed: float = 10.0, unknown: bool = False) -> GuardVerdict:
        self.now += elapsed
        seen = {GPU: None if unknown else users}
        self.sight = GuardSample({self.share.key: self.share}, seen, self.now, elapsed)
        verdict = guard_policy.guard_verdict(self.marks, self.sight, self.settings)
        self.marks = dict(verdict.marks)
        return verdict

    def obey(self, verdict: GuardVerdict, what: str = "") -> Order:
        (order,) = verdict.orders
        sent = what or order.signal
        self.marks = guard_policy.marks_after_signal(self.marks, self.sight, order, sent)
        return order

    @property
    def mark(self) -> GuardMark:
        return self.marks[self.share.key]


def test_what_processes_use_is_added_up() -> None:
    looks = Looks()
    assert looks.see(user(1, 2), user(2, 2)).marks == {}
    (mark,) = looks.see(user(1, 2.2), user(2, 2.1), user(9, 40, None)).began
    assert (mark.used, mark.since) == (int(2.2 * GIB) + int(2.1 * GIB), 1020.0)


def test_a_little_more_is_tolerated_and_keeps_a_mark() -> None:
    looks = Looks()
    assert looks.see(user(1, 4.1)).marks == {}
    looks.see(user(1, 4.3))
    for _ in range(5):
        assert looks.see(user(1, 4.1)).orders == ()
    assert looks.mark.spent == 0  # in between the clock stands
    assert looks.see(user(1, 4)).ended == ()
    assert len(looks.see(user(1, 4), elapsed=SETTLED).ended) == 1


def test_after_the_grace_the_largest_process_is_to_end() -> None:
    looks = Looks()
    for _ in range(3):
        assert (
            looks.see(user(1, 1), user(2, 4), user(3, 30, "other"), user(4, 9, None)).orders == ()
        )
    order = looks.obey(looks.see(user(1, 1), user(2, 4)))
    assert (order.user.pid, order.signal) == (2, TERM)
    assert looks.mark.spent == 0


def test_a_process_that_comes_back_has_no_new_grace() -> None:
    looks = Looks()
    looks.see(user(1, 5))
    looks.see(user(1, 5), elapsed=20)
    looks.see(elapsed=1)  # it has ended
    looks.see(user(7, 5), elapsed=1)  # and is back
    assert looks.obey(looks.see(user(7, 5), elapsed=10)).user.pid == 7


def test_who_was_at_ease_for_long_has_a_new_grace() -> None:
    looks = Looks()
    looks.see(user(1, 5))
    looks.see(user(1, 5), elapsed=20)
    looks.see(user(1, 2))
    looks.see(user(1, 2))
    looks.see(user(1, 5))
    assert looks.see(user(1, 5), elapsed=20).orders == ()


def test_the_next_process_has_the_grace_again() -> None:
    looks = Looks(replace(SETTINGS, grace=10.0))
    looks.see(user(1, 5), user(2, 6))
    looks.obey(looks.see(user(1, 5), user(2, 6)))
    order = looks.obey(looks.see(user(1, 5), user(2, 6)))  # the first one does not care
    assert order.user.pid == 1
    assert looks.see(user(1, 5), user(2, 6)).orders == ()  # each is asked once
    assert looks.obey(looks.see(user(1, 5), user(2, 6), user(3, 1))).user.pid == 3


def test_kill_follows_after_its_own_time() -> None:
    looks = Looks(Guard(action=KILL, grace=20.0, kill_after=30.0))
    looks.see(user(1, 5))
    looks.see(user(1, 5))
    looks.obey(looks.see(user(1, 5)))
    assert looks.see(user(1, 5), user(2, 5), elapsed=29).orders == ()  # nor anybody else
    order = looks.obey(looks.see(user(1, 5), user(2, 5), elapsed=1))
    assert (order.user.pid, order.signal) == (1, END)
    assert looks.see(user(1, 5), user(2, 5), elapsed=19).orders == ()
    assert looks.obey(looks.see(user(1, 5), user(2, 4), elapsed=1)).user.pid == 2


def test_kill_is_for_the_process_that_was_asked_and_not_for_its_pid() -> None:
    looks = Looks(Guard(action=KILL, grace=10.0, kill_after=5.0))
    looks.see(user(1, 5))
    looks.obey(looks.see(user(1, 5)))
    again = replace(user(1, 5), started=99)
    order = looks.obey(looks.see(again))
    assert (order.user, order.signal) == (again, TERM)


def test_who_came_down_after_sigterm_is_not_killed() -> None:
    looks = Looks(Guard(action=KILL, grace=10.0, kill_after=5.0))
    looks.see(user(1, 5))
    looks.obey(looks.see(user(1, 5)))
    assert looks.see(user(1, 3), elapsed=3).orders == ()
    assert looks.see(user(1, 3), elapsed=1).orders == ()


def test_what_nobody_saw_is_not_counted() -> None:
    looks = Looks()
    looks.see(user(1, 5))
    for _ in range(10):
        assert looks.see(unknown=True).orders == ()
    looks.see(user(1, 5))
    assert looks.mark.spent == 0
    looks.see(user(1, 5), elapsed=500)  # the driver hung: at most two long waits count
    assert looks.mark.spent == 20


def test_unknown_memory_is_not_counted_and_not_taken_for_none() -> None:
    looks = Looks()
    assert looks.see(user(1, None), user(2, 3.9)).marks == {}
    looks.see(user(1, None), user(2, 5))
    for _ in range(4):
        looks.see(user(1, None), user(2, 1))  # who knows
    assert looks.mark.spent == 0
    looks.see(user(2, 1))
    assert looks.see(user(2, 1)).marks == {}


def test_report_and_none_end_nothing() -> None:
    for action in (REPORT, NO_ACTION):
        looks = Looks(Guard(action=action, grace=0.0))
        assert all(looks.see(user(1, 5)).orders == () for _ in range(5))


def test_a_share_that_is_only_likely_ends_nothing() -> None:
    looks = Looks(Guard(action=KILL, grace=0.0), replace(SHARE, is_certain=False))
    assert [len(looks.see(user(1, 5)).orders) for _ in range(3)] == [0, 0, 0]
    assert looks.marks


def test_a_signal_that_may_not_be_sent_is_not_tried_each_second() -> None:
    looks = Looks(replace(SETTINGS, grace=10.0))
    looks.see(user(1, 5))
    looks.obey(looks.see(user(1, 5)), FAILED)
    assert looks.see(user(1, 5), elapsed=1).orders == ()
    assert looks.see(user(1, 5)).orders == ()


def test_one_process_of_a_container_at_a_time() -> None:
    """It may be above its limits of two devices, and one process may be the reason for both."""
    other = replace(SHARE, device="GPU-2")
    users = {GPU: (user(1, 5), user(2, 1)), "GPU-2": (user(1, 5), user(2, 6))}
    shares = {SHARE.key: SHARE, other.key: other}
    settings = replace(SETTINGS, grace=0.0)
    verdict = guard_policy.guard_verdict({}, GuardSample(shares, users, 1.0), settings)
    (order,) = verdict.orders
    marks = guard_policy.marks_after_signal(
        verdict.marks, GuardSample(shares, users, 1.0), order, TERM
    )
    assert all(mark.sent[0].pid == 1 for mark in marks.values())
    later = guard_policy.guard_verdict(marks, GuardSample(shares, users, 2.0, 1.0), settings)
    assert [one.user.pid for one in later.orders] == [2]


def test_marks_of_what_nobody_holds_any_more_go() -> None:
    looks = Looks()
    looks.see(user(1, 5))
    verdict = guard_policy.guard_verdict(looks.marks, GuardSample({}, {}, looks.now), SETTINGS)
    assert (verdict.marks, len(verdict.ended)) == ({}, 1)


def test_looks_are_frequent_near_a_limit_and_ever_rarer_far_from_it() -> None:
    settings = Guard(shortest_interval=2.0, longest_interval=30.0)
    waits = [0.0]
    for _ in range(6):
        waits.append(guard_policy.interval(waits[-1], is_near=False, settings=settings))
    assert waits == [0, 2, 4, 8, 16, 30, 30]
    assert guard_policy.interval(30, is_near=True, settings=settings) == 2
    near = GuardSample({SHARE.key: SHARE}, {GPU: (user(1, 3.3),)}, 0)
    assert guard_policy.is_near(near)
    assert not guard_policy.is_near(replace(near, users={GPU: (user(1, 3),)}))
    assert not guard_policy.is_near(replace(near, users={GPU: (user(1, 9, None),)}))
    assert not guard_policy.is_near(replace(near, users={GPU: None}))
