# SPDX-License-Identifier: Apache-2.0
"""Reports of the wrapper and the hooks: the engine's log file, the journal, standard error.

An engine gives `create` the container's own standard streams, so only the error that prevents the
container's start is printed there. Warnings go to the file of --log, to the node's journal or
syslog, and, by `warnings`, into the container's ledger entry.

How engines read the file of --log when a create fails:

    containerd  (go-runc, in its shim; Docker has the same shim) reads a sequence of JSON values and
                reports the last one whose level is "error". `time` must be RFC 3339.
    podman      passes --log to runtimes of known names (runtime_supports_json). It parses the
                whole file as one JSON value and reports its msg, whatever the level. If that
                fails, it reports the runtime's standard error as conmon has read it; runc and
                crun write their errors there, too.
    CRI-O       passes no --log: it reports standard error as conmon has read it.

Therefore an error is one JSON object. A warning is two, message and hint: podman then never takes a
warning for the reason why a container did not start, and containerd skips both.

A hook's standard error: runc keeps it and prints it if the hook fails. crun sends it to /dev/null
or to the file of the annotation run.oci.hooks.stderr, which may be the container's stream.
"""

from __future__ import annotations

import os
import time

from gpuhook.errors import GpuhookError, fault, printable
from gpuhook.host.hot import fastjson

_MOST_WARNINGS = 32  # a container determines how many there are
MAX_LINE = 4096


class EngineLog:
    """The reports of one program about one container.

    `container` is the container's id, "" while it is not known. `warnings` are those reported so
    far, each once.
    """

    def __init__(self, program: str, path: str = "", log_format: str = "text") -> None:
        self._program = program
        self._path = path
        self._format = log_format
        self.container = ""
        self.warnings: list[GpuhookError] = []

    def failure(self, error: GpuhookError) -> None:
        """Report a fault: one line in the log; the hint on another line of standard error.

        The container does not start, so its warnings belong to the engine's error text. They come
        last: conmon reads a few kilobytes, and a container determines how many warnings there are.
        """
        line = f"{error.code}: {error.message}"
        self._write([("error", f"{line} ({error.hint})")])
        lines = [f"error {line}", f"hint: {error.hint}"]
        lines += [f"warning {one.code}: {one.message}" for one in self.warnings]
        print_error("".join(f"{self._program}: {text}\n" for text in lines))

    def warning(self, error: GpuhookError) -> None:
        """Report what the container lacks. A warning never reaches the container's streams."""
        if not self.keep(error):
            return
        line = f"{error.code}: {error.message}"
        if self._format == "json":
            self._write([("warning", line), ("info", f"hint: {error.hint}")])
        else:
            self._write([("warning", f"{line} ({error.hint})")])
        from gpuhook.host.hot import journal  # few containers have a warning

        text = printable(f"{line} ({error.hint})", MAX_LINE)
        journal.send(self._program, error.code, text, printable(self.container))

    def keep(self, error: GpuhookError) -> bool:
        """Add a warning to `warnings`; returns whether it is to be reported."""
        if len(self.warnings) == _MOST_WARNINGS or _is_among(error, self.warnings):
            return False
        self.warnings.append(error)
        return True

    def _write(self, lines: list[tuple[str, str]]) -> None:
        """Append (level, message) pairs to the log in one write: other programs append, too."""
        if not self._path:
            return
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        text = "".join(self._formatted(level, message, now) for level, message in lines)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            fd = os.open(self._path, flags, 0o644)
        except OSError:
            return  # an error is on standard error too, a warning in the ledger
        try:
            os.write(fd, text.encode("utf-8", "backslashreplace"))
        except OSError:
            return
        finally:
            os.close(fd)

    def _formatted(self, level: str, message: str, now: str) -> str:
        line = printable(f"{self._program}: {message}", MAX_LINE)
        quoted = fastjson.dumps(line).decode()
        if self._format == "json":
            return f'{{"level":"{level}","msg":{quoted},"time":"{now}"}}\n'
        return f'time="{now}" level={level} msg={quoted}\n'


def _is_among(error: GpuhookError, known: list[GpuhookError]) -> bool:
    return any((one.code, one.message) == (error.code, error.message) for one in known)


def as_fault(error: Exception, place: str) -> GpuhookError:
    """Return an error as a fault: GH1490 for an OSError, at `place` if it names no file."""
    if isinstance(error, GpuhookError):
        return error
    if isinstance(error, OSError):
        where = error.filename or error.filename2 or place
        return fault("GH1490", where=where, reason=error.strerror or str(error))
    return unforeseen(error)


def unforeseen(error: Exception) -> GpuhookError:
    """Return GH1491 for an unexpected exception, with its line; GH1492 for a lack of memory."""
    if isinstance(error, MemoryError):
        return fault("GH1492")
    place, trace = "gpuhook", error.__traceback__
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}", trace.tb_next
    return fault("GH1491", kind=type(error).__name__, reason=error, place=place)


def print_error(text: str) -> None:
    """Print on standard error, if that is open."""
    try:
        os.write(2, text.encode("utf-8", "backslashreplace"))
    except OSError:
        return  # standard error is closed
