# SPDX-License-Identifier: Apache-2.0
"""What commands print: documents, tables, messages, and the progress of long work.

Documents go to standard output, messages to standard error. `gpuhook --quiet` leaves out messages
that are neither warnings nor faults.
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
from gpuhook.host.terminal import terminal_features
from gpuhook.host.text_table import Terminal, fitted, table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, TypeVar

    T = TypeVar("T")

JSON, YAML, TABLE, WIDE, NAME, TEXT = "json", "yaml", "table", "wide", "name", "text"
_MAX_LINE = 4096
_YAML_WIDTH = 100
AFTER = 1.0  # seconds until work is shown
_CLEAR = "\r\x1b[K"
_shown: list[str] = []  # the work that is shown now
_counts: list[str] = []  # how much of it is done
_NUMBER, _ERROR_NUMBER = 1, 2  # the descriptors of standard output and standard error
_NAME = "standard output"


def document(value: dict[str, Any], output: str) -> None:
    """Print a document as JSON or YAML: `output` is "json" or "yaml"."""
    click.echo(text(value, output), nl=False)


def text(value: dict[str, Any], output: str) -> str:
    """Return a document as JSON or YAML text, with a line break at the end."""
    if output == YAML:
        return _yaml(value)
    return json.dumps(value, indent=2) + "\n"


def _yaml(value: dict[str, Any]) -> str:
    import yaml

    class Plain(yaml.SafeDumper):
        """Writes a value that occurs twice in both places, without an alias."""

        def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 # PyYAML's signature
            return True

    return documents.yaml_text(value, Plain, width=_YAML_WIDTH)


def rows(
    headers: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    no_headers: bool = False,
    order: Sequence[str] = (),
    is_wide: bool = False,
) -> None:
    """Print a table, and a note on the columns that the terminal has no room for."""
    shown, left_out = table_text(
        headers, lines, no_headers=no_headers, order=order, is_wide=is_wide
    )
    click.echo(shown, nl=False)
    say_left_out(left_out)


def table_text(
    headers: Sequence[str],
    lines: Sequence[Sequence[str]],
    *,
    no_headers: bool = False,
    order: Sequence[str] = (),
    is_wide: bool = False,
) -> tuple[str, list[str]]:
    """Return a table, fitted to a terminal unless `is_wide`, and the columns that are omitted.

    `order` has the most important columns first: see text_table.fitted().
    """
    width = None if is_wide else terminal_features.width()
    if width is None:
        return table(None if no_headers else headers, lines), []
    is_unicode = terminal_features.is_unicode()
    if not is_unicode:
        lines = [[_ascii(cell) for cell in line] for line in lines]
    terminal = Terminal(width, "…" if is_unicode else "~")
    return fitted(headers, lines, terminal, order, no_headers=no_headers)


def say_left_out(headers: Sequence[str]) -> None:
    """Print which columns of tables are omitted, if any."""
    if headers:
        names = ", ".join(dict.fromkeys(headers))
        say(f"not shown in this narrow terminal: {names}; `| cat` shows all columns")


def _ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


def names(found: Iterable[str]) -> None:
    """Print one name per line, for `-o name`: other commands take these names as arguments."""
    for name in found:
        click.echo(printable(name, _MAX_LINE))


def say(text: str) -> None:
    """Print a message on standard error, but not with --quiet."""
    if not is_quiet():
        _tell(printable(text, _MAX_LINE))


def warn(text: str) -> None:
    """Print a warning on standard error."""
    _tell(f"warning: {printable(text, _MAX_LINE)}")


def note(text: str) -> None:
    """Print a note on standard error."""
    _tell(f"note: {printable(text, _MAX_LINE)}")


def _tell(text: str) -> None:
    """Print a line on standard error, in the place of the progress that is shown there."""
    clear_progress()
    click.echo(text, err=True)


def clear_progress() -> None:
    """Remove the line of the progress before output; it appears again."""
    if _shown:
        _write(_CLEAR)


def is_quiet() -> bool:
    """Return whether the user passed --quiet."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().params.get("quiet"))


@contextmanager
def progress(work: str, after: float = AFTER) -> Iterator[None]:
    """Show `work` and the seconds so far on a terminal if it takes longer than `after` seconds.

    The line is removed at the end. Nothing is shown with --quiet, and for work within other work.
    """
    if _shown or is_quiet() or not terminal_features.takes_escapes(sys.stderr):
        yield
        return
    ended = threading.Event()
    thread = threading.Thread(target=_show, args=(work, after, ended), daemon=True)
    _shown.append(work)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        _shown.remove(work)


def counted(items: Iterable[T], total: int, what: str) -> Iterator[T]:
    """Yield `items`; the progress that is shown meanwhile has the number of those done."""
    try:
        for done, item in enumerate(items):
            _counts[:] = [f": {what} {done}/{total}"]
            yield item
    finally:
        _counts.clear()


def _show(work: str, after: float, ended: threading.Event) -> None:
    seconds = after
    if ended.wait(after):
        return
    while True:
        _write(f"{_CLEAR}{work}{''.join(_counts)} ... {seconds:.0f} s")
        if ended.wait(1):
            _write(_CLEAR)
            return
        seconds += 1


def _write(text: str) -> None:
    """Write past the stream's lock: processes that the work forks meanwhile would inherit it."""
    with suppress(OSError):
        os.write(sys.stderr.fileno(), text.encode(errors="replace"))


class _Named(io.FileIO):
    """Standard output that names itself in its errors."""

    def write(self, data: Any, /) -> int:
        """Write as io.FileIO does."""
        try:
            return super().write(data)
        except OSError as error:
            error.filename = _NAME
            raise


class _Messages(io.FileIO):
    """Standard error: what cannot be written is lost."""

    def write(self, data: Any, /) -> int:
        """Write as io.FileIO does; a full disk or a closed pipe stops no command."""
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_standard_streams() -> None:
    """Give standard output's name to its errors, so that standard_output_fault() knows them.

    If standard output is closed (`>&-`), writes fail from now on; if standard error is closed, or
    cannot be written, what is written to it is lost. No file that is opened later gets the number
    of either.
    """
    if sys.stderr is None:
        _point(_ERROR_NUMBER, os.O_WRONLY)
    if sys.stderr is sys.__stderr__:
        sys.stderr = io.TextIOWrapper(
            _Messages(_ERROR_NUMBER, "wb", closefd=False),
            encoding=sys.stderr.encoding if sys.stderr else "utf-8",
            errors="backslashreplace",
            line_buffering=True,
        )
    old = sys.stdout
    if old is not sys.__stdout__:
        return
    if old is None:
        _point(_NUMBER, os.O_RDONLY)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_Named(_NUMBER, "wb", closefd=False)),
        encoding=old.encoding if old else "utf-8",
        errors=old.errors if old else "backslashreplace",
        line_buffering=isinstance(old, io.TextIOWrapper) and old.line_buffering,
    )


def standard_output_fault(error: OSError) -> GpuhookError | None:
    """Return GH1591 if `error` is an error of standard output, else None.

    Later output is discarded, so that nothing fails a second time.
    """
    if error.filename != _NAME:
        return None
    _point(_NUMBER, os.O_WRONLY)
    reason = "it is closed" if error.errno == errno.EBADF else error.strerror
    return fault("GH1591", reason=reason)


def _point(number: int, flags: int) -> None:
    """Let a descriptor be /dev/null, opened with `flags`."""
    fd = os.open(os.devnull, flags)
    if fd != number:
        os.dup2(fd, number)
        os.close(fd)
