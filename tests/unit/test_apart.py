# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own: what it answers, and what becomes of it when it cannot."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuhook.cli import container_options as options
from gpuhook.cli import main
from gpuhook.container import find, ledger
from gpuhook.container.runtime_state import Found
from gpuhook.programs import apart

CHECKOUT = Path(__file__).parents[2]
# What is held is undone in the child, which takes its time.
UNDOING = """
import sys, time
from pathlib import Path
from gpuhook.programs import apart
from gpuhook.programs.interruptible import Interruptible

def work():
    with Interruptible() as signals:
        signals.hold()
        Path(sys.argv[1], "begun").touch()
        time.sleep(0.5)
        try:
            signals.check()
        except KeyboardInterrupt:
            time.sleep(0.5)
            Path(sys.argv[1], "undone").touch()
            raise

apart.done(work, 30)
"""


def children() -> set[str]:
    """Return the pids of this process's children, also of those that nobody has waited for."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.fixture(autouse=True)
def no_child_is_left() -> Iterator[None]:
    """Fail where a child outlives its test; others may have left some of theirs."""
    before = children()
    yield
    assert children() <= before


def killed() -> None:
    """Do what the kernel does to a process for want of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_an_answer() -> None:
    """What another process returns is returned here."""
    pid = os.getpid()
    assert apart.done(lambda: {"is_ours": [os.getpid() == pid]}, 30) == {"is_ours": [False]}


def test_no_answer() -> None:
    """A child that is killed, or fails, is an error that says so; nothing of it is left."""
    before = os.listdir("/proc/self/fd")
    with pytest.raises(OSError, match="was ended by signal 9") as raised:
        apart.done(killed, 30)
    assert raised.value.errno == errno.EIO
    with pytest.raises(OSError, match="ended with status 1"):
        apart.done(lambda: 1 // 0, 30)
    assert os.listdir("/proc/self/fd") == before


def test_too_slow() -> None:
    """A child that keeps us waiting is killed."""
    with pytest.raises(TimeoutError):
        apart.done(lambda: time.sleep(60), 0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_interrupted(number: int, tmp_path: Path) -> None:
    """Who is interrupted at a terminal waits for the child, which undoes what it had begun."""
    words = [sys.executable, "-c", UNDOING, str(tmp_path)]
    process = subprocess.Popen(
        words, cwd=CHECKOUT, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    while not (tmp_path / "begun").exists():
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, number)
    _, said = process.communicate()
    assert process.returncode != 0
    assert said.splitlines()[-1] == "KeyboardInterrupt"
    assert (tmp_path / "undone").exists()


def test_repair_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """A repair that is killed is told, and the next container is repaired."""

    def one(found: Found, *_: object, **__: object) -> dict[str, object]:
        if found.id == "first":
            killed()
        return {"container": found.id, "steps": [], "skipped": [], "notes": [], "left": []}

    monkeypatch.setattr(options, "grants", lambda: None)
    monkeypatch.setattr(find, "everything", lambda _: ([Found("first"), Found("second")], {}))
    monkeypatch.setattr("gpuhook.cli.repair._one", one)
    done = CliRunner().invoke(main, ["repair", "--all"])
    assert done.exit_code == 1
    assert "Error GH1590: first: " in done.stderr
    assert "signal 9" in done.stderr
    assert "second: nothing to do" in done.stdout


def test_each_is_done_by_one_process_and_its_death_costs_one_answer() -> None:
    """A child that is killed or keeps us waiting is followed by another, which does the rest."""
    before = os.listdir("/proc/self/fd")

    def work(item: int) -> list[int]:
        if item == 2:
            killed()
        if item == 5:
            time.sleep(60)
        return [item, os.getpid()]

    found = list(apart.each(work, range(8), 0.5))
    assert [item for item, _ in found] == list(range(8))
    answers = dict(found)
    assert isinstance(answers[2], OSError)
    assert "signal 9" in str(answers[2])
    assert isinstance(answers[5], TimeoutError)
    pids = [answers[item][1] for item in (0, 1, 3, 4, 6, 7)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4] == pids[5]
    assert os.listdir("/proc/self/fd") == before


def test_who_stops_listening_ends_the_work(tmp_path: Path) -> None:
    """What is not asked for any more is not done."""

    def work(item: int) -> int:
        (tmp_path / str(item)).touch()
        time.sleep(0.2)
        return item

    answers = apart.each(work, range(50), 30)
    assert next(answers) == (0, 0)
    answers.close()  # type: ignore[attr-defined] # a generator
    assert os.listdir(tmp_path) == ["0"]


def test_several_processes_do_their_shares_at_once_and_answer_in_order() -> None:
    """Shares are done beside each other; what one of them loses costs one answer."""
    before = os.listdir("/proc/self/fd")

    def work(item: int) -> list[int]:
        if item == 2:
            killed()
        if item == 5:
            time.sleep(60)
        return [item, os.getpid()]

    found = list(apart.each(work, range(8), 0.5, 3))
    assert [item for item, _ in found] == list(range(8))
    answers = dict(found)
    assert isinstance(answers[2], OSError)
    assert isinstance(answers[5], TimeoutError)
    assert len({answers[item][1] for item in (0, 1, 3, 4, 6, 7)}) == 2
    assert answers[0][1] == answers[3][1] == answers[6][1]
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("size", [1, 100_000])
def test_who_stops_listening_to_several_processes_ends_them_all(size: int) -> None:
    """Also those that wait to get rid of answers which nobody takes."""
    answers = apart.each(lambda item: "x" * (item + size), range(60), 30, 3)
    assert next(answers) == (0, "x" * size)
    answers.close()  # type: ignore[attr-defined] # a generator


def test_more_processes_than_items_are_not_started() -> None:
    """Nothing is nothing, and one item is one process's."""
    assert list(apart.each(str, [], 30, 4)) == []
    assert list(apart.each(str, [7], 30, 4)) == [(7, "7")]


def test_repair_all_of_a_container_that_ends_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is no failure: containers come and go, and of this one there is nothing to repair."""
    child = subprocess.Popen(["sleep", "60"])
    found = Found("gone", child.pid, ledger.start_time(child.pid))
    child.kill()
    child.wait()
    monkeypatch.setattr(options, "grants", lambda: None)
    monkeypatch.setattr(find, "everything", lambda _: ([found], {}))
    done = CliRunner().invoke(main, ["repair", "--all"])
    assert (done.exit_code, done.stderr) == (0, "no running container was granted a GPU\n")
