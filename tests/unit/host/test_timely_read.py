# SPDX-License-Identifier: Apache-2.0
"""A read in a child process: its text, no answer, no child, and what the child keeps open."""

from __future__ import annotations

import errno
import os
import signal
import time

import pytest

from gpuhook.host.hot import timely_read
from tests.waiting import eventually


def _late() -> str:
    time.sleep(600)
    return ""


def _descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_text() -> None:
    """It is whole, also an empty one, and no descriptor is left."""
    before = _descriptors()
    assert timely_read.text(lambda: "generation=1,\udcff", 60) == "generation=1,\udcff"
    assert timely_read.text(str, 60) == ""
    assert _descriptors() == before


def test_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child is killed, and has no pipe of its parent from which an engine reads."""
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    reader, writer = os.pipe()
    assert timely_read.text(_late, 0.05) is None
    os.close(writer)
    assert os.read(reader, 1) == b""
    os.close(reader)
    ((pid, number),) = killed
    assert number == signal.SIGKILL
    monkeypatch.undo()
    assert timely_read.text(str, 60) is None  # the child is still held: there is no second one
    os.kill(pid, number)
    eventually(lambda: timely_read.text(lambda: "read", 60) == "read")
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller reads itself if no process can be started, or if the child was killed."""
    parent = os.getpid()

    def here() -> str:
        if os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return "here"

    assert timely_read.text(here, 60) == "here"

    def no_process() -> int:
        raise OSError(errno.EAGAIN, "no process")

    monkeypatch.setattr(os, "fork", no_process)
    assert timely_read.text(here, 60) == "here"
