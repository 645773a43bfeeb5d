# SPDX-License-Identifier: Apache-2.0
"""Child processes with a deadline: their output and their end."""

from __future__ import annotations

import os
import signal
import time

from gpuhook.host.hot import files
from gpuhook.host.warm import child_process


def test_output_is_read_to_its_end() -> None:
    """The last bytes of the output are kept, and the pipe has exited in time."""
    reader, writer = os.pipe()
    pid = child_process.fork(lambda: files.write_whole(writer, b"first last"), writer)
    os.close(writer)
    assert child_process.read_until(reader, time.monotonic() + 30, 4) == (b"last", True)
    assert child_process.wait_until(pid, time.monotonic() + 30) == 0
    os.close(reader)


def test_writer_that_never_pauses_is_late() -> None:
    """The deadline also applies while there is always something to read."""
    endless = os.open("/dev/zero", os.O_RDONLY)
    began = time.monotonic()
    assert child_process.read_until(endless, began + 0.05, 100) == (bytes(100), False)
    assert time.monotonic() - began < 10
    os.close(endless)


def test_silent_writer_is_late() -> None:
    """Output before the deadline is returned although the pipe is still open."""
    reader, writer = os.pipe()
    os.write(writer, b"some")
    assert child_process.read_until(reader, time.monotonic() + 0.02) == (b"some", False)
    os.close(reader)
    os.close(writer)


def test_late_child_is_killed() -> None:
    """A child that does not end is killed at the deadline."""
    pid = child_process.fork(signal.pause)
    assert child_process.wait_until(pid, time.monotonic()) is None
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
