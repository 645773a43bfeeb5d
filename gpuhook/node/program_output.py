# SPDX-License-Identifier: Apache-2.0
"""Programs of the node asked about themselves: each for as long as anybody has patience.

They are run in the node's own files: where these lie in another directory, as in a pod that looks
at its node, that is the root of the program.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from contextlib import suppress

from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE = 5.0  # seconds
# Where programs are that no PATH of the system's names: snaps, k3s and rke2 bring their own.
_MORE = (
    "/snap/bin",
    "/var/lib/rancher/k3s/data/current/bin",
    "/var/lib/rancher/rke2/bin",
    "/opt/bin",
)
DIRECTORIES = (*state.PROGRAM_DIRS, *_MORE)
_MAX_OUTPUT = 1 << 20
_ENDS_WITHIN = 1.0  # seconds


class ProgramOutput:
    """A program that was started, to be heard later: several run at the same time."""

    def __init__(self, argv: Sequence[str], root: str = "/") -> None:
        """Start `argv`, a whole path first, below `root`; raises OSError."""
        self._argv = argv
        command = list(argv) if root == "/" else ["chroot", root, *argv]
        environment = {"PATH": ":".join(DIRECTORIES), "LC_ALL": "C", "HOME": "/"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            cwd="/",
            start_new_session=True,
        )

    def heard(self, seconds: float = PATIENCE) -> str:
        """Return what it has printed; raises OSError if it fails, or goes on for too long."""
        try:
            out, _ = self._process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._end()
            late = f"it has not answered within {seconds:g} seconds"
            raise OSError(errno.ETIMEDOUT, late, self._argv[0]) from None
        if self._process.returncode != 0:
            status = self._process.returncode
            raise OSError(errno.EIO, f"it ended with status {status}", self._argv[0])
        return out[:_MAX_OUTPUT].decode("utf-8", "replace")

    def _end(self) -> None:
        """Kill it with what it has started; one that hangs in the kernel is not waited for."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        if self._process.stdout is not None:
            self._process.stdout.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDS_WITHIN)


def answer(argv: Sequence[str], root: str = "/", seconds: float = PATIENCE) -> str:
    """Return what a program prints; raises OSError with its name."""
    return ProgramOutput(argv, root).heard(seconds)
