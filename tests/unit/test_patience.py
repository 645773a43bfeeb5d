# SPDX-License-Identifier: Apache-2.0
"""Something in a process of its own: what it answers, and what becomes of one that does not."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError, fault
from gpuhook.programs.patience import ENDED, LATE, Apart, NoAnswerError, answered


class Counter:
    """Something to be asked, in a process that is not the test's."""

    def __init__(self, start: int = 0) -> None:
        self.count = start

    def more(self, by: int) -> tuple[int, int]:
        """Return the sum, and who has counted."""
        self.count += by
        return self.count, os.getpid()

    def fails(self, how: str) -> None:
        """Fail in some way."""
        if how == "fault":
            raise fault("GH1250", path="/nvml")
        if how == "mistake":
            raise ValueError(how)
        if how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(900)


def how(call: Callable[[], object]) -> str:
    with pytest.raises(NoAnswerError) as caught:
        call()
    return caught.value.how


def test_an_object_lives_in_a_process_of_its_own() -> None:
    with Apart(lambda: Counter(5), 5) as apart:
        first, pid = apart.call("more", 1)
        assert (first, apart.call("more", 10)) == (6, (16, pid))
        assert pid != os.getpid()
        with pytest.raises(GpuhookError, match="/nvml"):
            apart.call("fails", "fault")
        assert how(lambda: apart.call("fails", "mistake")) == ENDED
        assert apart.call("more", 1) == (17, pid)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_one_that_ends_or_hangs_answers_nothing_any_more() -> None:
    with Apart(Counter, 5) as apart:
        assert how(lambda: apart.call("fails", "crash")) == ENDED
        assert how(lambda: apart.call("more", 1)) == ENDED
    with Apart(Counter, patience=0.2) as apart:
        assert how(lambda: apart.call("fails", "hang")) == LATE
        assert how(lambda: apart.call("more", 1)) == LATE


def test_what_cannot_be_made() -> None:
    def fails() -> None:
        raise fault("GH1250", path="/nvml")

    with pytest.raises(GpuhookError, match="/nvml"):
        Apart(fails, 5)
    assert how(lambda: Apart(lambda: time.sleep(900), patience=0.1)) == LATE
    assert answered(lambda: {"all": "well"}, 5) == {"all": "well"}


def test_it_holds_nothing_of_ours(tmp_path: Path) -> None:
    """Neither a lock, nor a pipe whose reader waits for the end of all who could write to it."""
    lock = os.open(tmp_path / "lock", os.O_CREAT | os.O_WRONLY)
    reader, writer = os.pipe()
    fcntl.flock(lock, fcntl.LOCK_EX)
    with Apart(Counter, 5) as apart:
        apart.call("more", 1)
        os.close(lock)
        os.close(writer)
        assert os.read(reader, 1) == b""
        again = os.open(tmp_path / "lock", os.O_WRONLY)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(again)
    os.close(reader)
