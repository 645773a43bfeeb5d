# SPDX-License-Identifier: Apache-2.0
"""The guard's decisions: containers above their limit, the grace period, and signals."""

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


class Samples:
    """A series of samples, ten seconds apart by default."""

    def __init__(self, settings: Guard = SETTINGS, share: GuardShare = SHARE) -> None:
        self.settings, self.share = settings, share
        self.marks: dict[Key, GuardMark] = {}
        self.now = 1000.0

    def sample(self, *users: User, elapsed: float = 10.0, unknown: bool = False) -> GuardVerdict:
        self.now += elapsed
        seen = {GPU: None if unknown else users}
        self.sight = GuardSample({self.share.key: self.share}, seen, self.now, elapsed)
        verdict = guard_policy.guard_verdict(self.marks, self.sight, self.settings)
        self.marks = dict(verdict.marks)
        return verdict

    def send(self, verdict: GuardVerdict, what: str = "") -> Order:
        (order,) = verdict.orders
        sent = what or order.signal
        self.marks = guard_policy.marks_after_signal(self.marks, self.sight, order, sent)
        return order

    @property
    def mark(self) -> GuardMark:
        return self.marks[self.share.key]


def test_memory_of_all_processes_is_added() -> None:
    samples = Samples()
    assert samples.sample(user(1, 2), user(2, 2)).marks == {}
    (mark,) = samples.sample(user(1, 2.2), user(2, 2.1), user(9, 40, None)).began
    assert (mark.used, mark.since) == (int(2.2 * GIB) + int(2.1 * GIB), 1020.0)


def test_tolerance_prevents_a_mark_and_keeps_an_existing_one() -> None:
    samples = Samples()
    assert samples.sample(user(1, 4.1)).marks == {}
    samples.sample(user(1, 4.3))
    for _ in range(5):
        assert samples.sample(user(1, 4.1)).orders == ()
    assert samples.mark.spent == 0  # within the tolerance the grace period does not advance
    assert samples.sample(user(1, 4)).ended == ()
    assert len(samples.sample(user(1, 4), elapsed=SETTLED).ended) == 1


def test_largest_process_gets_sigterm_after_the_grace_period() -> None:
    samples = Samples()
    for _ in range(3):
        assert (
            samples.sample(user(1, 1), user(2, 4), user(3, 30, "other"), user(4, 9, None)).orders
            == ()
        )
    order = samples.send(samples.sample(user(1, 1), user(2, 4)))
    assert (order.user.pid, order.signal) == (2, TERM)
    assert samples.mark.spent == 0


def test_restarted_process_gets_no_new_grace_period() -> None:
    samples = Samples()
    samples.sample(user(1, 5))
    samples.sample(user(1, 5), elapsed=20)
    samples.sample(elapsed=1)  # it has exited
    samples.sample(user(7, 5), elapsed=1)  # and has restarted
    assert samples.send(samples.sample(user(7, 5), elapsed=10)).user.pid == 7


def test_grace_period_restarts_after_a_settled_time_below_the_limit() -> None:
    samples = Samples()
    samples.sample(user(1, 5))
    samples.sample(user(1, 5), elapsed=20)
    samples.sample(user(1, 2))
    samples.sample(user(1, 2))
    samples.sample(user(1, 5))
    assert samples.sample(user(1, 5), elapsed=20).orders == ()


def test_next_process_gets_its_own_grace_period() -> None:
    samples = Samples(replace(SETTINGS, grace=10.0))
    samples.sample(user(1, 5), user(2, 6))
    samples.send(samples.sample(user(1, 5), user(2, 6)))
    order = samples.send(samples.sample(user(1, 5), user(2, 6)))  # process 2 ignored SIGTERM
    assert order.user.pid == 1
    assert samples.sample(user(1, 5), user(2, 6)).orders == ()  # each process gets SIGTERM once
    assert samples.send(samples.sample(user(1, 5), user(2, 6), user(3, 1))).user.pid == 3


def test_sigkill_follows_after_kill_after_seconds() -> None:
    samples = Samples(Guard(action=KILL, grace=20.0, kill_after=30.0))
    samples.sample(user(1, 5))
    samples.sample(user(1, 5))
    samples.send(samples.sample(user(1, 5)))
    assert samples.sample(user(1, 5), user(2, 5), elapsed=29).orders == ()  # no signal
    order = samples.send(samples.sample(user(1, 5), user(2, 5), elapsed=1))
    assert (order.user.pid, order.signal) == (1, END)
    assert samples.sample(user(1, 5), user(2, 5), elapsed=19).orders == ()
    assert samples.send(samples.sample(user(1, 5), user(2, 4), elapsed=1)).user.pid == 2


def test_process_with_a_reused_pid_gets_sigterm_first() -> None:
    samples = Samples(Guard(action=KILL, grace=10.0, kill_after=5.0))
    samples.sample(user(1, 5))
    samples.send(samples.sample(user(1, 5)))
    again = replace(user(1, 5), started=99)
    order = samples.send(samples.sample(again))
    assert (order.user, order.signal) == (again, TERM)


def test_container_below_its_limit_after_sigterm_gets_no_sigkill() -> None:
    samples = Samples(Guard(action=KILL, grace=10.0, kill_after=5.0))
    samples.sample(user(1, 5))
    samples.send(samples.sample(user(1, 5)))
    assert samples.sample(user(1, 3), elapsed=3).orders == ()
    assert samples.sample(user(1, 3), elapsed=1).orders == ()


def test_time_without_a_sample_does_not_count() -> None:
    samples = Samples()
    samples.sample(user(1, 5))
    for _ in range(10):
        assert samples.sample(unknown=True).orders == ()
    samples.sample(user(1, 5))
    assert samples.mark.spent == 0
    samples.sample(user(1, 5), elapsed=500)  # the driver hung: at most two long intervals count
    assert samples.mark.spent == 20


def test_unknown_memory_neither_adds_use_nor_ends_a_mark() -> None:
    samples = Samples()
    assert samples.sample(user(1, None), user(2, 3.9)).marks == {}
    samples.sample(user(1, None), user(2, 5))
    for _ in range(4):
        samples.sample(user(1, None), user(2, 1))  # total unknown
    assert samples.mark.spent == 0
    samples.sample(user(2, 1))
    assert samples.sample(user(2, 1)).marks == {}


def test_actions_report_and_none_send_no_signal() -> None:
    for action in (REPORT, NO_ACTION):
        samples = Samples(Guard(action=action, grace=0.0))
        assert all(samples.sample(user(1, 5)).orders == () for _ in range(5))


def test_uncertain_share_is_marked_but_sends_no_signal() -> None:
    samples = Samples(Guard(action=KILL, grace=0.0), replace(SHARE, is_certain=False))
    assert [len(samples.sample(user(1, 5)).orders) for _ in range(3)] == [0, 0, 0]
    assert samples.marks


def test_failed_signal_is_not_retried_at_once() -> None:
    samples = Samples(replace(SETTINGS, grace=10.0))
    samples.sample(user(1, 5))
    samples.send(samples.sample(user(1, 5)), FAILED)
    assert samples.sample(user(1, 5), elapsed=1).orders == ()
    assert samples.sample(user(1, 5)).orders == ()


def test_one_process_of_a_container_gets_a_signal_at_a_time() -> None:
    """A process can use memory of two devices whose limits the container exceeds."""
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


def test_mark_without_a_share_ends() -> None:
    samples = Samples()
    samples.sample(user(1, 5))
    verdict = guard_policy.guard_verdict(samples.marks, GuardSample({}, {}, samples.now), SETTINGS)
    assert (verdict.marks, len(verdict.ended)) == ({}, 1)


def test_interval_is_short_near_a_limit_and_doubles_otherwise() -> None:
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
