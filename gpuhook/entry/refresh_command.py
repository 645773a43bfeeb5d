# SPDX-License-Identifier: Apache-2.0
"""`gpuhook refresh`, run by a container start that finds the node's CDI specs stale.

Loaded only then. Many containers may find that at once: one of them runs it, and the others wait
for it, within the time that engines allow.
"""

from __future__ import annotations

import os
import time

from gpuhook.entry import command_process
from gpuhook.host.hot import file_lock, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT = 30.0  # seconds, for earlier runs and this one together
_LOOK = 0.01
_FAILURE_AGE = 5.0  # seconds without another run after a failure
_NO_HELP = "it was run a few seconds ago and did not change that"
_KILL = 9
_MAX_TAIL = 65536


def run(command: list[str], environment: dict[str, str], is_needed: Callable[[], bool]) -> str:
    """Run `command`, alone on this node, unless another process has made it unnecessary meanwhile.

    Returns "" if it succeeded or was unnecessary; else why it failed. Raises OSError if the state
    directory cannot be written.
    """
    end = time.monotonic() + _TIMEOUT
    lock = file_lock.open_lock(os.path.join(state.directory(), "refresh-wanted.lock"))
    try:
        if not file_lock.is_locked(lock, _TIMEOUT):
            return f"another process has been running it for {_TIMEOUT:g} seconds"
        if not is_needed():
            return ""
        failure = _just_failed(lock)
        if not failure:
            failure = _failure_of(command, environment, end)
            # What it did not fix now, it does not fix for the next container. Otherwise a container
            # that requests a missing device runs it at each start, while all others wait.
            _note(lock, failure or (_NO_HELP if is_needed() else ""))
        return failure
    finally:
        os.close(lock)


def _just_failed(lock: int) -> str:
    """Return why the last run failed, "" if it did not, or some time ago."""
    when, _, reason = os.pread(lock, 4096, 0).decode("utf-8", "replace").partition(" ")
    try:
        age = time.monotonic() - float(when)
    except ValueError:
        return ""
    return reason if 0 <= age < _FAILURE_AGE else ""


def _note(lock: int, failure: str) -> None:
    os.ftruncate(lock, 0)
    if failure:
        os.pwrite(lock, f"{time.monotonic()} {failure}".encode("utf-8", "replace")[:4096], 0)


def _failure_of(command: list[str], environment: dict[str, str], end: float) -> str:
    """Run the command; its output goes into a file, since engines read ours as the runtime's."""
    output = os.path.join(state.directory(), "refresh.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(command[0], command, environment, file_actions=actions)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return _reason(output, status) if status else ""
        if time.monotonic() > end:
            os.kill(pid, _KILL)  # and not waited for: a hung driver may block it
            return f"{' '.join(command)} did not end in time"
        time.sleep(_LOOK)


def _reason(path: str, status: int) -> str:
    """Return why a command failed that has written its output to the file `path`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            output = os.read(fd, _MAX_TAIL)
        finally:
            os.close(fd)
    except OSError:
        output = b""
    return command_process.reason(output, status)
