# SPDX-License-Identifier: Apache-2.0
"""Work that may take long says so, to a person who waits for it.

Only a terminal is told, after the first second, on standard error; --quiet says nothing.
"""

from __future__ import annotations

import sys
import threading
from contextlib import contextmanager

import click

from gpuhook.cli import printing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

AFTER = 1.0  # seconds
_CLEAR = "\r\x1b[K"


@contextmanager
def telling(what: str, after: float = AFTER) -> Iterator[None]:
    """Say `what` is being done if it is not done `after` seconds; take the line away at the end."""
    if printing.is_quiet() or not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()
    told = threading.Thread(target=_tell, args=(what, after, ended), daemon=True)
    told.start()
    try:
        yield
    finally:
        ended.set()
        told.join()


def _tell(what: str, after: float, ended: threading.Event) -> None:
    seconds = after
    if ended.wait(after):
        return
    while True:
        click.echo(f"{_CLEAR}{what} ... {seconds:.0f} s", err=True, nl=False)
        if ended.wait(1):
            click.echo(_CLEAR, err=True, nl=False)
            return
        seconds += 1
