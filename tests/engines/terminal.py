# SPDX-License-Identifier: Apache-2.0
"""A command on a terminal: its questions are answered as a user does."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import termios
from collections.abc import Sequence

from tests.contract.runtimes import SECONDS, Result
from tests.engines.booted_node import BootedDebian
from tests.engines.engine_node import EngineNode

CTRL_C, CTRL_D = "\x03", "\x04"


def on_terminal(node: EngineNode, answers: Sequence[tuple[str, str]], *words: str) -> Result:
    """Run a command on a node; each answer is typed when its question has been printed.

    The result has all output. Ctrl-C also reaches the program that starts the command in the node:
    the status is then the signal's.
    """
    host = node.debian
    command = host.inside(*words) if isinstance(host, BootedDebian) else host.command(*words)
    ours, theirs = pty.openpty()
    rest = list(answers)
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**host.variables, "TERM": "xterm"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 # no threads
    ) as process:
        os.close(theirs)
        printed, since = "", ""
        while piece := _read(ours):
            printed += piece
            since += piece
            if rest and rest[0][0] in since:
                os.write(ours, rest.pop(0)[1].encode())
                since = ""
        os.close(ours)
        status = process.wait(SECONDS)
    assert not rest, (rest, printed)
    return Result(status, printed.replace("\r", ""), "")


def _read(fd: int) -> str:
    """Return what was printed, "" at the end."""
    try:
        return os.read(fd, 65536).decode(errors="replace")
    except OSError:  # EIO: no process has the terminal
        return ""
