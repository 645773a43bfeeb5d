# SPDX-License-Identifier: Apache-2.0
"""What the terminal of this process can show. Files and pipes get text in full, without escapes."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_PLAIN_LOCALES = ("C", "POSIX")
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # PEP 538: Python's LC_CTYPE for the C locale
_SOME_SIGNS = "╭█…"


def has_colour() -> bool:
    """Return whether standard output takes colour: it is a terminal, if no variable says else.

    NO_COLOR comes first, then FORCE_COLOR and CLICOLOR_FORCE, then CLICOLOR=0 and TERM=dumb. An
    empty variable does not apply. Sources: https://no-color.org, https://bixense.com/clicolors.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if any(
        os.environ.get(name) not in (None, "", "0") for name in ("FORCE_COLOR", "CLICOLOR_FORCE")
    ):
        return True
    return os.environ.get("CLICOLOR") != "0" and takes_escapes(sys.stdout)


def takes_escapes(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width() -> int | None:
    """Return the columns of the terminal at standard output, None for a file or a pipe."""
    if not sys.stdout.isatty():
        return None
    import shutil  # it loads all compressions

    return shutil.get_terminal_size((0, 0)).columns or None


def is_unicode() -> bool:
    """Return whether standard output shows other characters than ASCII.

    The locale C, if a variable names it, has ASCII only. Without any variable, as in a container,
    the terminal is a modern one.
    """
    named = [os.environ.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG")]
    if named[0] in (None, "") and named[1] in _COERCED and named[2]:
        named[1] = None
    chosen = next((name for name in named if name), None)
    if chosen in _PLAIN_LOCALES:
        return False
    try:
        _SOME_SIGNS.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
