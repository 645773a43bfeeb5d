# SPDX-License-Identifier: Apache-2.0
"""The log file that an engine names with --log, written as the low-level runtime writes it.

HOT. containerd and podman read that file to tell the user why a container did not start. Podman
takes the whole file for one JSON object, so nothing is written there of a container that gets what
it asked for.
"""

from __future__ import annotations

import os
import time

from gpuhook import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError


class EngineLog:
    """Where a program of ours reports: the engine's log file, and standard error."""

    def __init__(self, program: str, path: str = "", log_format: str = "text") -> None:
        self._program = program
        self._path = path
        self._format = log_format

    def failure(self, error: GpuhookError) -> None:
        """Report a fault: one line in the log; the hint on a line of its own on standard error."""
        line = f"{error.code}: {error.message}"
        self._write("error", f"{self._program}: {line} ({error.hint})")
        _talk(f"{self._program}: error {line}\n{self._program}: hint: {error.hint}\n")

    def warning(self, error: GpuhookError) -> None:
        """Report what the container does without, or what went wrong beside its way."""
        line = f"{error.code}: {error.message}"
        self._write("warning", f"{self._program}: {line} ({error.hint})")
        _talk(f"{self._program}: warning {line}\n")

    def _write(self, level: str, message: str) -> None:
        if not self._path:
            return
        line = fastjson.dumps(message).decode()
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        if self._format == "json":
            text = f'{{"level":"{level}","msg":{line},"time":"{now}"}}\n'
        else:
            text = f'time="{now}" level={level} msg={line}\n'
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o644)
        except OSError:
            return  # standard error has it too
        try:
            os.write(fd, text.encode("utf-8", "surrogateescape"))
        except OSError:
            return
        finally:
            os.close(fd)


def _talk(text: str) -> None:
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        return  # nobody listens
