# SPDX-License-Identifier: Apache-2.0
"""Work in a child process: its answers, and a child that ends, hangs or is killed."""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError, fault
from gpuhook.host import worker_pool
from gpuhook.host.hot import procfs
from gpuhook.host.worker import ENDED, LATE, UNSTARTED, NoAnswerError, Worker, call_in_child
from gpuhook.host.worker_pool import each

CHECKOUT = Path(__file__).parents[3]
# A child that needs time to undo its work when it is interrupted.
UNDOING = """
import sys, time
from pathlib import Path
from gpuhook.host.interrupt import Interruptible
from gpuhook.host.worker import Worker

def work():
    with Interruptible() as signals:
        signals.hold()
        Path(sys.argv[1], "begun").touch()
        try:
            while True:
                time.sleep(0.01)
                signals.check()
        except KeyboardInterrupt:
            time.sleep(0.5)
            Path(sys.argv[1], "undone").touch()
            raise

with Worker(lambda: work, 60, undo=True) as worker, Interruptible():
    try:
        worker.call("__call__")
    except KeyboardInterrupt:
        worker.interrupt()
        raise
"""


def children() -> set[str]:
    """Return the pids of this process's children, with those that no process has waited for."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Fail if a child outlives its test; children of other tests are ignored."""
    before = children()
    yield
    assert children() <= before


def killed() -> None:
    """Kill this process as the kernel does if memory is exhausted."""
    os.kill(os.getpid(), signal.SIGKILL)


class Counter:
    """An object that is called in a child process."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def more(self, by: int) -> tuple[int, int]:
        """Return the sum, and the pid of the counting process."""
        self.count += by
        return self.count, os.getpid()

    def fails(self, how: str) -> None:
        """Fail in the given way."""
        if how == "fault":
            raise fault("GH1250", path="/nvml")
        if how == "mistake":
            raise ValueError(how)
        if how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(900)


def reason(call: Callable[[], object]) -> str:
    with pytest.raises(NoAnswerError) as caught:
        call()
    return caught.value.how


def test_object_lives_in_a_child_process() -> None:
    with Worker(lambda: Counter(5), 5) as worker:
        first, pid = worker.call("more", 1)
        assert (first, worker.call("more", 10)) == (6, (16, pid))
        assert pid != os.getpid()
        with pytest.raises(GpuhookError, match="/nvml"):
            worker.call("fails", "fault")
        assert reason(lambda: worker.call("fails", "mistake")) == ENDED
        assert worker.call("more", 1) == (17, pid)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_ended_or_hanging_worker_gives_no_more_answers() -> None:
    with Worker(Counter, 5) as worker:
        assert reason(lambda: worker.call("fails", "crash")) == ENDED
        assert reason(lambda: worker.call("more", 1)) == ENDED
    with Worker(Counter, seconds=0.2) as worker:
        assert reason(lambda: worker.call("fails", "hang")) == LATE
        assert reason(lambda: worker.call("more", 1)) == LATE


def test_failing_constructor_is_reported() -> None:
    def fails() -> None:
        raise fault("GH1250", path="/nvml")

    with pytest.raises(GpuhookError, match="/nvml"):
        Worker(fails, 5)
    assert reason(lambda: Worker(lambda: time.sleep(900), seconds=0.1)) == LATE
    assert call_in_child(lambda: {"all": "well"}, 5) == {"all": "well"}


def test_child_inherits_no_lock_or_pipe(tmp_path: Path) -> None:
    """A reader of a pipe waits for the end of all processes that can write to it."""
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_WRONLY)
    reader, writer = os.pipe()
    fcntl.flock(lock, fcntl.LOCK_EX)
    with Worker(Counter, 5) as worker:
        worker.call("more", 1)
        os.close(lock)
        os.close(writer)
        assert os.read(reader, 1) == b""
        again = os.open(tmp_path / "lock", os.O_WRONLY)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    os.close(reader)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_interrupt_waits_for_the_child(number: int, tmp_path: Path) -> None:
    """The child undoes what it had begun."""
    words = [sys.executable, "-c", UNDOING, str(tmp_path)]
    process = subprocess.Popen(words, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate()
    assert process.returncode != 0
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert (tmp_path / "undone").exists()


def test_grandchild_is_killed_with_the_child() -> None:
    """Also after the child's own end."""

    def starts() -> int:
        return subprocess.Popen(["sleep", "900"]).pid

    with Worker(lambda: starts, 5) as worker:
        pid = worker.call("__call__")
        assert worker.kill() == ()
    assert not Path(f"/proc/{pid}").exists() or b" Z " in Path(f"/proc/{pid}/stat").read_bytes()


def test_standard_error_of_the_child_is_forwarded(capfd: pytest.CaptureFixture[str]) -> None:
    """Also what it writes before it hangs."""

    def says(text: str) -> None:
        os.write(2, text.encode())
        if text == "last":
            time.sleep(900)

    with Worker(lambda: says, 0.5, relay_stderr=True) as worker:
        worker.call("__call__", "first ")
        assert capfd.readouterr().err == "first "
        assert reason(lambda: worker.call("__call__", "last")) == LATE
    assert capfd.readouterr().err == "last"


def test_killed_child_costs_one_answer() -> None:
    """A child that is killed or hangs is replaced by another one, which does the rest."""
    before = os.listdir("/proc/self/fd")

    def work(item: int) -> tuple[int, int]:
        if item == 2:
            killed()
        if item == 5:
            time.sleep(60)
        return item, os.getpid()

    found = list(each(work, range(8), 0.5, 1))
    assert [item for item, _ in found] == list(range(8))
    answers = dict(found)
    assert answers[2].how == ENDED
    assert "signal 9" in answers[2].reason
    assert answers[5].how == LATE
    pids = [answers[item][1] for item in (0, 1, 3, 4, 6, 7)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]
    assert os.listdir("/proc/self/fd") == before


def test_closing_the_iterator_ends_the_work(tmp_path: Path) -> None:
    """Items that were not begun are not done."""

    def work(item: int) -> int:
        (tmp_path / str(item)).touch()
        if item:
            time.sleep(60)
        return item

    answers = each(work, range(50), 30, 1)
    assert next(answers) == (0, 0)
    answers.close()  # type: ignore[attr-defined] # a generator
    assert {"0"} <= set(os.listdir(tmp_path)) <= {"0", "1"}


def test_several_processes_answer_in_order() -> None:
    """They work in parallel; a lost process costs one answer."""
    before = os.listdir("/proc/self/fd")

    def work(item: int) -> tuple[int, int]:
        if item == 2:
            killed()
        if item == 5:
            time.sleep(60)
        return item, os.getpid()

    found = list(each(work, range(8), 0.5, 3))
    assert [item for item, _ in found] == list(range(8))
    answers = dict(found)
    assert answers[2].how == ENDED
    assert answers[5].how == LATE
    assert len({answers[item][1] for item in (0, 3, 6)}) == 1
    assert len({answers[item][1] for item in (1, 4, 7)}) == 1
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("size", [1, 100_000])
def test_closing_the_iterator_ends_all_processes(size: int) -> None:
    """Also those that wait to send answers that no process reads."""
    answers = each(lambda item: "x" * (item + size), range(60), 30, 3)
    assert next(answers) == (0, "x" * size)
    answers.close()  # type: ignore[attr-defined] # a generator


def test_hanging_processes_share_one_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deadline of an item does not begin when the earlier items have their answers."""
    monkeypatch.setattr(worker_pool, "_LEAST", 0.1)
    began = time.monotonic()
    found = [answer for _, answer in each(lambda _: time.sleep(600), range(8), 2, 8)]
    assert [one.how for one in found] == [LATE] * 8
    assert {one.reason for one in found} == {"no answer within 2 seconds"}
    assert time.monotonic() - began < 10  # one after the other: 16


def test_each_item_has_the_whole_deadline() -> None:
    """An item gets its whole time: it begins when its process has answered for the one before."""

    def work(number: int) -> int:
        time.sleep(0.4)
        return number

    assert [answer for _, answer in each(work, range(6), 1, 2)] == list(range(6))


def test_more_items_than_fit_into_the_pipes() -> None:
    """Neither side waits for the other with full pipes."""
    found = list(each(lambda item: "x" * 50_000, range(300), 30, 2))
    assert [item for item, _ in found] == list(range(300))
    assert {len(answer) for _, answer in found} == {50_000}


def test_no_more_processes_than_items() -> None:
    """No process for no item, and one for one item."""
    assert list(each(str, [], 30, 4)) == []
    assert list(each(str, [7], 30, 4)) == [(7, "7")]


def test_item_whose_process_cannot_start_costs_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel refuses both tries for the first item, and no later one."""
    fork, tries = os.fork, iter((True, True))

    def refused_twice() -> int:
        if next(tries, False):
            raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
        return fork()

    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, "fork", refused_twice)
    first, *others = each(lambda item: item * 10, [1, 2, 3], 30, 1)
    assert (first[0], first[1].how) == (1, UNSTARTED)
    assert others == [(2, 20), (3, 30)]
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("free", range(5))
def test_missing_descriptors_are_an_error(free: int) -> None:
    """The child is not started, and opened descriptors are closed."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = os.listdir("/proc/self/fd")
    used = {int(name) for name in before if os.path.lexists(f"/proc/self/fd/{name}")}
    unused = [number for number in range(max(used) + 10) if number not in used]
    resource.setrlimit(resource.RLIMIT_NOFILE, (unused[free], limits[1]))
    try:
        with pytest.raises(NoAnswerError) as caught:
            Worker(Counter, 5, relay_stderr=True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert caught.value.how == UNSTARTED
    assert os.listdir("/proc/self/fd") == before


def test_worker_in_a_worker_that_is_late_is_killed(tmp_path: Path) -> None:
    """It has its own session."""
    note = tmp_path / "pid"

    def inner() -> None:
        note.write_text(str(os.getpid()), "utf-8")
        time.sleep(600)

    def outer() -> None:
        call_in_child(inner, 600)

    with pytest.raises(NoAnswerError) as error:
        call_in_child(outer, 1.0)
    assert error.value.left == ()
    stat = procfs.process_stat(int(note.read_text("utf-8")))
    assert not stat or stat[0] in procfs.ENDED


def test_process_with_the_pid_of_a_killed_one_is_not_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A descendant of the child ends, and a process of the node gets its pid at once."""
    read, looks = procfs.process_stat, []

    with subprocess.Popen(["sleep", "600"]) as other, Worker(lambda: os.getpid, 5) as worker:
        child = worker.call("__call__")

        def process_stat(pid: int, proc: str = "/proc") -> list[bytes] | None:
            fields = read(pid, proc)
            if pid == other.pid and fields:
                looks.append(pid)
                fields[procfs.PARENT], fields[procfs.START] = b"%d" % child, b"5"
            return fields

        with monkeypatch.context() as first_look:
            first_look.setattr(procfs, "process_stat", process_stat)
            first_look.setattr(os, "kill", lambda *_: None)
            first_look.setattr(time, "sleep", lambda _: first_look.undo())
            assert worker.kill() == ()
        assert looks == [other.pid]
        assert other.poll() is None
        other.kill()
