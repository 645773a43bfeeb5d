# SPDX-License-Identifier: Apache-2.0
"""The columns that text takes in a terminal: East Asian characters take two, accents none.

Source: Unicode Standard Annex 11. Characters of ambiguous width take one column, as in xterm.
"""

from __future__ import annotations

from unicodedata import category, east_asian_width

_WIDE = ("W", "F")
_ZERO = ("Mn", "Me", "Cf")


def width_of(text: str) -> int:
    r"""Return the columns of a text without control characters.

    >>> width_of("trainer"), width_of("학습"), width_of("e\N{COMBINING ACUTE ACCENT}")
    (7, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_width, text))


def padded(text: str, width: int) -> str:
    """Return a text with spaces at its end, `width` columns wide if it is not wider."""
    return text + " " * (width - width_of(text))


def clipped(text: str, width: int, cut: str = "…") -> str:
    """Return the start of a text that is wider than `width` columns, with the sign `cut`.

    >>> clipped("no such device", 8), clipped("학습 작업", 6)
    ('no such…', '학습…')
    """
    if width_of(text) <= width:
        return text
    return _start(text, width - width_of(cut)).rstrip() + cut


def shortened(name: str, width: int, cut: str = "…") -> str:
    """Return a name of at most `width` columns: both ends, as the last letters tell pods apart.

    >>> shortened("train-7d9f-x2", 13), shortened("training-7d9f-x2", 11)
    ('train-7d9f-x2', 'train…9f-x2')
    """
    if width_of(name) <= width:
        return name
    end = width // 2
    last = _start(name[::-1], end)[::-1]
    return _start(name, width - width_of(cut) - end) + cut + last


def _start(text: str, width: int) -> str:
    taken, used = [], 0
    for sign in text:
        used += _width(sign)
        if used > width:
            break
        taken.append(sign)
    return "".join(taken)


def _width(sign: str) -> int:
    if category(sign) in _ZERO:
        return 0
    return 2 if east_asian_width(sign) in _WIDE else 1
