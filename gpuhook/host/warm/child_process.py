# SPDX-License-Identifier: Apache-2.0
"""A child process with a deadline, for hooks: they have no pickle, and no module `subprocess`.

A process in a system call that never returns is uninterruptible (proc(5), state D): SIGKILL does
not end it, so nothing here waits for a process past its deadline. host/worker.py is for commands.
"""

from __future__ import annotations

import errno
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_POLL = 0.002  # seconds between two looks at a pipe or a process
_CHUNK = 65536
_SIGKILL = 9


def fork(run: Callable[[], None], *kept: int) -> int:
    """Return the pid of a child that calls `run`, with only the descriptors `kept`, and ends.

    Its exit status is 1 if `run` raises. Raises OSError if no process can be started.
    """
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        keep_only(*kept)
        run()
        status = 0
    finally:
        os._exit(status)  # the parent's code never runs twice


def keep_only(*kept: int) -> None:
    """Close all descriptors but these; /dev/null replaces the standard ones.

    A runtime waits until no process has the pipe from which it reads a hook's output, and other
    processes wait for the locks of a container.
    """
    nothing = os.open("/dev/null", os.O_RDWR)
    for standard in {0, 1, 2}.difference(kept):
        os.dup2(nothing, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in kept:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself


def read_until(fd: int, end: float, most: int = 1 << 24) -> tuple[bytes, bool]:
    """Return the last `most` bytes of a pipe, and whether it ended before the time `end`.

    `end` is a value of time.monotonic().
    """
    os.set_blocking(fd, False)
    found = b""
    while True:
        try:
            chunk = os.read(fd, _CHUNK)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
            chunk = None
        if chunk == b"":
            return found, True
        found = (found + (chunk or b""))[-most:]
        if time.monotonic() > end:  # also for a writer that never pauses
            return found, False
        if chunk is None:
            time.sleep(_POLL)


def wait_until(pid: int, end: float) -> int | None:
    """Return the wait status of a child; after `end`, kill it and return None."""
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        if time.monotonic() > end:
            os.kill(pid, _SIGKILL)
            return None
        time.sleep(_POLL)
