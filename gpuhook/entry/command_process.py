# SPDX-License-Identifier: Apache-2.0
"""A cold command that the wrapper or a hook starts and waits for.

Loaded only for a file that is not compiled yet, or for a stale spec.
"""

from __future__ import annotations

import os

from gpuhook.host.hot import state

_MAX_OUTPUT = 65536


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
    end = f"it was killed by signal {-code}" if code < 0 else f"it ended with status {code}"
    return (faults or last or [end])[0]


def _environment() -> dict[str, str]:
    """Return the engine's environment without what could load foreign code into Python."""
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LD_"))
    }


def environment_of_node() -> dict[str, str]:
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
