# SPDX-License-Identifier: Apache-2.0
"""Work that may take long says so, to a person who waits for it.

Only a terminal is told, after the first second, on standard error; --quiet says nothing. Of work
within work the outer one is told.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager, suppress

from gpuhook.host import console

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

AFTER = 1.0  # seconds
_CLEAR = "\r\x1b[K"
_told: list[str] = []  # what is being told now


@contextmanager
def telling(what: str, after: float = AFTER) -> Iterator[None]:
    """Say `what` is being done if it is not done `after` seconds; take the line away at the end."""
    if _told or console.is_quiet() or not sys.stderr.isatty():
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
