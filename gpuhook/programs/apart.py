# SPDX-License-Identifier: Apache-2.0
"""Work in a process of its own, for as long as it may take: a container can keep us waiting.

Its own file systems (FUSE) answer when they like, and nothing but SIGKILL ends that wait.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import time

from gpuhook import files
from gpuhook.programs.interruptible import Interruptible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def done(work: Callable[[], Any], seconds: float) -> Any:
    """Return what `work`, done in a child process, returns, as far as JSON can say it.

    Raises TimeoutError after so many seconds, and OSError where the child ends without an answer.
    `work` catches what it raises. An interrupt is raised when the child has ended: it may be
    undoing what it had begun, as whoever interrupts at a terminal interrupts both.
    """
    with Interruptible() as signals:
        signals.hold()
        try:
            return _answer(work, seconds)
        finally:
            signals.check()


def _answer(work: Callable[[], Any], seconds: float) -> Any:
    pid, reader = _started(work)
    try:
        text = _read(reader, time.monotonic() + seconds)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
    finally:
        os.close(reader)
        status = os.waitpid(pid, 0)[1]
    try:
        return json.loads(text)
    except ValueError:
        raise OSError(errno.EIO, f"the process that was to do it {_ended(status)}") from None


def _started(work: Callable[[], Any]) -> tuple[int, int]:
    """Return the pid of a child that works, and a descriptor (the caller's) of its answer."""
    reader, writer = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(reader)
        os.close(writer)
        raise
    if pid == 0:
        status = 1
        try:
            files.write_whole(writer, json.dumps(work()).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    return pid, reader


def _ended(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"was ended by signal {os.WTERMSIG(status)}"
    return f"ended with status {os.WEXITSTATUS(status)}"


def _read(fd: int, end: float) -> bytes:
    """Return all that comes out of a pipe; raises TimeoutError."""
    chunks: list[bytes] = []
    while True:
        if not select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        chunk = os.read(fd, 65536)
        if not chunk:
            return b"".join(chunks)
        chunks.append(chunk)
