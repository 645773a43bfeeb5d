# SPDX-License-Identifier: Apache-2.0
"""--watch: the output again and again, in place on a terminal, else one after another."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from contextlib import contextmanager, nullcontext
from functools import partial

import click

from gpuhook.cli.options import parameters
from gpuhook.host.terminal import terminal_features

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TextIO, TypeVar

    F = TypeVar("F", bound="Callable[..., Any]")

_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"
# The alternate screen, without a cursor, and with long lines cut instead of wrapped.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[?7h\x1b[?25h\x1b[?1049l"
_ENDS = (b"q", b"Q", b"\x03", b"\x04", b"")


def options(command: F) -> F:
    """Add --watch and --interval to a click command."""
    interval = click.option(
        "--interval",
        type=parameters.Seconds(),
        default=2.0,
        show_default=True,
        show_envvar=True,
        metavar="SECONDS",
        help="With --watch: the time between updates.",
    )
    watch = click.option(
        "-w",
        "--watch",
        is_flag=True,
        help="Update the output until q or ctrl-c. If standard output is not a terminal, each "
        "update is appended to the output: JSON with one document per line, YAML with documents "
        "separated by ---.",
    )
    return watch(interval(command))


def run(look: Callable[[], str], interval: float) -> None:
    """Show what `look` returns every `interval` seconds, until q, ctrl-c or ctrl-d."""
    is_terminal = terminal_features.takes_escapes(sys.stdout)
    try:
        with _screen() if is_terminal else nullcontext(partial(_elapsed, None)) as waits:
            while True:
                _show(look(), is_terminal=is_terminal)
                if not waits(interval):
                    return
    except KeyboardInterrupt:
        return


def _show(text: str, *, is_terminal: bool) -> None:
    """Write a text: on a terminal over the last one, cut to the height of the terminal."""
    if is_terminal:
        lines = text.splitlines()
        height = shutil.get_terminal_size().lines
        if len(lines) > height:
            more = len(lines) - height + 1
            lines = [*lines[: height - 1], f"... and {more} more lines than the terminal has"]
        text = _HOME + "\n".join(line + _REST_OF_LINE for line in lines) + _REST
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def _screen() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for a key or a time, on the alternate screen."""
    keys = sys.stdin if sys.stdin.isatty() else None
    before = termios.tcgetattr(keys) if keys is not None else None
    sys.stdout.write(_ENTER)
    try:
        if keys is not None:
            tty.setcbreak(keys)
        yield partial(_elapsed, keys)
    finally:
        if keys is not None and before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


def _elapsed(keys: TextIO | None, seconds: float) -> bool:
    """Return whether the time has passed without a key that ends the command."""
    if keys is None:
        time.sleep(seconds)
        return True
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        if select.select([keys], [], [], left)[0] and os.read(keys.fileno(), 1) in _ENDS:
            return False
    return True
