# SPDX-License-Identifier: Apache-2.0
"""The path of the file for which a process or a thread waits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

from gpuhook.host.blocked_call import blocking_path
from tests.waiting import eventually


@contextmanager
def python(code: str, *words: str) -> Iterator[int]:
    """Yield the pid of a Python process that runs `code`."""
    with subprocess.Popen([sys.executable, "-c", code, *words]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize("length", [1, 200])
def test_open_that_blocks(tmp_path: Path, length: int) -> None:
    """No process opens the other end of the FIFO."""
    fifo = tmp_path / ("x" * length)
    os.mkfifo(fifo)
    with python("import sys; open(sys.argv[1])", str(fifo)) as pid:
        eventually(lambda: blocking_path(pid) == str(fifo), "a process that opens the FIFO")


def test_read_that_blocks(tmp_path: Path) -> None:
    """The FIFO is open for writing, and empty."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    code = "import os, sys; os.read(os.open(sys.argv[1], os.O_RDWR), 1)"
    with python(code, str(fifo)) as pid:
        eventually(lambda: blocking_path(pid) == str(fifo), "a process that reads the FIFO")


def test_thread_of_this_process(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    thread = Thread(target=fifo.read_bytes)
    thread.start()
    tid = thread.native_id or 0
    eventually(lambda: blocking_path(os.getpid(), tid) == str(fifo), "a thread that opens the FIFO")
    fifo.write_bytes(b"")
    thread.join()
    assert blocking_path(os.getpid(), tid) == ""


def test_process_that_waits_for_no_file() -> None:
    with python("import time; time.sleep(1000)") as pid:
        syscall = Path(f"/proc/{pid}/syscall")
        eventually(lambda: not syscall.read_text("ascii").startswith("running"), "its sleep")
        assert blocking_path(pid) == ""
    assert blocking_path(pid) == ""
