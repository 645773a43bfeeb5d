# SPDX-License-Identifier: Apache-2.0
"""Cold commands that the wrapper or a hook starts and waits for.

Loaded only for a file that is not compiled yet, or for stale specs. Many containers may find at
once that the node's CDI specs are stale: one of them runs `gpuhook refresh`, and the others wait
for it, within the time that engines allow.
"""

from __future__ import annotations

import os
import time

from gpuhook.host.hot import file_lock, state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_OUTPUT = 65536
_TIMEOUT = 30.0  # seconds, for earlier runs and this one together
_LOOK = 0.01
_FAILURE_AGE = 5.0  # seconds without another run after a failure
_NO_HELP = "it was run a few seconds ago and did not fix that"
_KILL = 9


def run(command: list[str]) -> tuple[int, bytes]:
    """Run a command to its end; returns its wait status and the beginning of its output.

    Our standard output carries the answer to the launcher, and our standard error may be the
    container's: the command gets neither.
    """
    reader, writer = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, writer, 1), (os.POSIX_SPAWN_DUP2, writer, 2)]
        words = [os.path.basename(command[0]), *command[1:]]
        pid = os.posix_spawn(command[0], words, _environment(), file_actions=actions)
    except OSError:
        os.close(reader)
        raise
    finally:
        os.close(writer)
    output = b""
    try:
        while chunk := os.read(reader, 65536):
            output = (output + chunk)[:_MAX_OUTPUT]
    finally:
        os.close(reader)
        status = os.waitpid(pid, 0)[1]
    return status, output


def reason(output: bytes, status: int) -> str:
    """Return why a command failed: the fault that it printed, else its last line or its status.

    `status` is its wait status.
    """
    lines = output.decode("utf-8", "replace").splitlines()
    faults = [line[len("Error ") :] for line in lines if line.startswith("Error ")]
    last = [line for line in lines if line.strip()][-1:]
    code = os.waitstatus_to_exitcode(status)
    end = f"it was killed by signal {-code}" if code < 0 else f"it exited with status {code}"
    return (faults or last or [end])[0]


def _environment() -> dict[str, str]:
    """Return the engine's environment without what could load foreign code into Python."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))
    }


def _environment_of_node() -> dict[str, str]:
    """Return the part of the engine's environment that applies to all containers of this node.

    The result outlives the user who starts this container; a podman user's variables name the
    user's own data and daemons (XDG_DATA_DIRS, CUDA_MPS_PIPE_DIRECTORY).
    """
    found = {
        name: value
        for name, value in _environment().items()
        if name.startswith(("GPUHOOK_", "LC_")) or name in ("LANG", "TZ", "XDG_RUNTIME_DIR")
    }
    found["PATH"] = ":".join(state.PROGRAM_DIRS)
    return found


def refresh(command: list[str], is_needed: Callable[[], bool]) -> str:
    """Run `command`, alone on this node, unless another process has made it unnecessary meanwhile.

    Its output goes into a file, since engines read ours as the runtime's. Returns "" if it
    succeeded or was unnecessary; else why it failed. Raises OSError if the state directory cannot
    be written.
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
            failure = _failure_of(command, end)
            # What it did not fix now, it does not fix for the next container. Otherwise a container
            # that requests a missing device runs it at each start, while all others wait.
            _note(lock, failure or (_NO_HELP if is_needed() else ""))
        return failure
    finally:
        os.close(lock)


def _just_failed(lock: int) -> str:
    """Return why the last run failed, "" if it did not, or some time ago."""
    when, _, failure = os.pread(lock, 4096, 0).decode("utf-8", "replace").partition(" ")
    try:
        age = time.monotonic() - float(when)
    except ValueError:
        return ""
    return failure if 0 <= age < _FAILURE_AGE else ""


def _note(lock: int, failure: str) -> None:
    os.ftruncate(lock, 0)
    if failure:
        os.pwrite(lock, f"{time.monotonic()} {failure}".encode("utf-8", "replace")[:4096], 0)


def _failure_of(command: list[str], end: float) -> str:
    output = os.path.join(state.directory(), "refresh.log")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, output, flags, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    pid = os.posix_spawn(command[0], command, _environment_of_node(), file_actions=actions)
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return _reason_in(output, status) if status else ""
        if time.monotonic() > end:
            os.kill(pid, _KILL)  # and not waited for: a hung driver may block it
            return f"{' '.join(command)} did not finish in time"
        time.sleep(_LOOK)


def _reason_in(path: str, status: int) -> str:
    """Return why a command failed that has written its output to the file `path`."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            output = os.read(fd, _MAX_OUTPUT)
        finally:
            os.close(fd)
    except OSError:
        output = b""
    return reason(output, status)
