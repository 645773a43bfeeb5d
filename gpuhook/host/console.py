# SPDX-License-Identifier: Apache-2.0
"""What every command prints alike: documents, tables, talk.

Data goes to standard output, talk to standard error; `gpuhook --quiet` leaves out talk that is no
warning and no fault.
"""

from __future__ import annotations

import errno
import io
import json
import os
import sys
import threading
from contextlib import contextmanager, suppress

import click

from gpuhook.errors import GpuhookError, fault, printable
from gpuhook.host import documents
from gpuhook.host.text_table import table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

JSON, YAML, TABLE, WIDE, NAME, TEXT = "json", "yaml", "table", "wide", "name", "text"
_MAX_LINE = 4096
_YAML_WIDTH = 100


def document(value: dict[str, Any], output: str) -> None:
    """Print a document as JSON or YAML: `output` is "json" or "yaml"."""
    click.echo(text(value, output), nl=False)


def text(value: dict[str, Any], output: str) -> str:
    """Return a document as the text of JSON or YAML, with its line break at the end."""
    if output == YAML:
        return _yaml(value)
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: dict[str, Any]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes what stands in two places in both."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 # PyYAML's signature
            return True

    return documents.yaml_text(value, Plain, width=_YAML_WIDTH)


def rows(
    headers: Sequence[str], lines: Sequence[Sequence[str]], *, no_headers: bool = False
) -> None:
    """Print a table."""
    click.echo(table(None if no_headers else headers, lines), nl=False)


def names(found: Iterable[str]) -> None:
    """Print a name a line, for -o name: what other commands take as their argument."""
    for name in found:
        click.echo(printable(name, _MAX_LINE))


def say(text: str) -> None:
    """Tell something on standard error, which --quiet leaves out."""
    if not is_quiet():
        click.echo(printable(text, _MAX_LINE), err=True)


def warn(text: str) -> None:
    """Tell on standard error what is wrong beside the way."""
    click.echo(f"warning: {printable(text, _MAX_LINE)}", err=True)


def is_quiet() -> bool:
    """Return whether the caller asked for no talk."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("quiet"))


def has_colour() -> bool:
    """Return whether standard output takes colour: a terminal, and nobody said NO_COLOR.

    Source: https://no-color.org: the variable counts if it is there and not empty.
    """
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return sys.stdout.isatty()


AFTER = 1.0  # seconds
_CLEAR = "\r\x1b[K"
_told: list[str] = []  # what is being told now


@contextmanager
def telling(what: str, after: float = AFTER) -> Iterator[None]:
    """Say `what` is being done if it is not done `after` seconds; take the line away at the end."""
    if _told or is_quiet() or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    told = threading.Thread(target=_tell, args=(what, after, ended), daemon=True)
    _told.append(what)
    told.start()
    try:
        yield
    finally:
        ended.set()
        told.join()
        _told.remove(what)


def _tell(what: str, after: float, ended: threading.Event) -> None:
    seconds = after
    if ended.wait(after):
        return
    while True:
        _write(f"{_CLEAR}{what} ... {seconds:.0f} s")
        if ended.wait(1):
            _write(_CLEAR)
            return
        seconds += 1


def _write(text: str) -> None:
    """Write past the stream's lock: processes that the work forks meanwhile would inherit it."""
    with suppress(OSError):
        os.write(sys.stderr.fileno(), text.encode(errors="replace"))


_NUMBER = 1
_NAME = "standard output"


class _Named(io.FileIO):
    """Standard output whose errors say that they are of it."""

    def write(self, data: Any, /) -> int:
        """Write as a file does."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _NAME
            raise


def name() -> None:
    """Make the errors of this process's standard output known to trouble().

    Where it is closed (`>&-`), a write fails from now on, and no file that is opened later gets
    its number.
    """
    old = sys.stdout
    if old is not sys.__stdout__:
        return
    if old is None:
        _point(os.O_RDONLY)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Named(_NUMBER, "wb", closefd=False)),
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else "backslashreplace",
        line_buffering=isinstance(old, io.TextIOWrapper) and old.line_buffering,
    )


def trouble(error: OSError) -> GpuhookError | None:
    """Return GH1591 if `error` is one of standard output, None for another.

    What could not be written goes nowhere from now on, so that nothing fails a second time.
    """
    if error.filename != _NAME:
        return None
    _point(os.O_WRONLY)
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return fault("GH1591", reason=reason)


def _point(flags: int) -> None:
    """Let standard output be /dev/null, opened with `flags`."""
    fd = os.open(os.devnull, flags)
    if fd != _NUMBER:
        os.dup2(fd, _NUMBER)
        os.close(fd)
