# SPDX-License-Identifier: Apache-2.0
"""Plain tables: upper-case headers, two spaces between columns, no borders.

In a terminal, fitted() shortens long cells, then leaves out the columns that matter least. A pipe
gets every column in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import wrap

from gpuhook.errors import printable
from gpuhook.host.terminal.display_width import clipped, padded, shortened, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_CELL = 1 << 16
_GAP = 2
_LEAST = 14  # columns that a cell has at least, if its text is as long
_LEAST_SENTENCE = 16  # columns in which a sentence is wrapped; a narrower one is cut


@dataclass(frozen=True, slots=True)
class Terminal:
    """The columns of a terminal, and the sign for text that was cut."""

    width: int
    cut: str = "…"


def table(headers: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as lines of text, each column as wide as its widest cell."""
    lines = _cells(headers, rows)
    return _text(lines, _widths(lines))


def fitted(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    terminal: Terminal,
    order: Sequence[str] = (),
    *,
    no_headers: bool = False,
) -> tuple[str, list[str]]:
    """Return a table for a terminal, and the headers of the columns that were left out.

    `order` has the headers of the columns that matter, the most important one first; the others
    follow from left to right. The first column names the row: it is cut only if it needs more than
    three quarters of the terminal.
    """
    lines = _cells(headers, rows)
    if no_headers:
        lines = lines[1:]
    if not lines:
        return "", []
    full = _widths(lines)
    least = [min(width, _LEAST) for width in full]
    least[0] = full[0] if full[0] <= terminal.width * 3 // 4 else max(_LEAST, terminal.width // 2)
    ranked = sorted(range(len(headers)), key=lambda n: (n > 0, _rank(headers[n], order), n))
    kept: list[int] = []
    for column in ranked:
        if not kept or _total([least[n] for n in (*kept, column)]) <= terminal.width:
            kept.append(column)
    kept.sort()
    left_out = [headers[n] for n in range(len(headers)) if n not in kept]
    shown = [[line[n] for n in kept] for line in lines]
    widths = _shared([full[n] for n in kept], [least[n] for n in kept], terminal.width)
    return _text(_cut(shown, widths, terminal), widths), left_out


def counted(count: int, what: str, several: str = "") -> str:
    """Return a number with its noun: "1 mount", "22 mounts"."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"


def _cells(headers: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> list[list[str]]:
    # Containers choose the text of cells (annotations, variables): no terminal interprets it.
    shown = [[printable(cell, _MAX_CELL) for cell in row] for row in rows]
    return [list(headers), *shown] if headers else shown


def _rank(header: str, order: Sequence[str]) -> int:
    return order.index(header) if header in order else len(order)


def _widths(lines: Sequence[Sequence[str]]) -> list[int]:
    columns = range(len(lines[0])) if lines else ()
    return [max(width_of(line[column]) for line in lines) for column in columns]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def _shared(full: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """Return the width of each column: short columns keep theirs, the widest ones are equal."""
    low, high = 0, max(full)
    while low < high:  # the largest width of a column with which all fit
        most = (low + high + 1) // 2
        widths = [max(a, min(b, most)) for a, b in zip(least, full, strict=True)]
        low, high = (most, high) if _total(widths) <= width else (low, most - 1)
    found = [max(a, min(b, low)) for a, b in zip(least, full, strict=True)]
    room = width - _total(found)
    for number, (has, needs) in enumerate(zip(found, full, strict=True)):  # what is left of a share
        found[number] += max(0, min(room, needs - has))
        room -= found[number] - has
    return found


def _cut(
    lines: Sequence[Sequence[str]], widths: Sequence[int], terminal: Terminal
) -> list[list[str]]:
    """Return lines whose cells fit; a sentence in the last column continues on further lines."""
    found = []
    for line in lines:
        *cells, last = line
        room = widths[-1]
        parts = [last]
        if cells and width_of(last) > room >= _LEAST_SENTENCE and " " in last and last.isascii():
            parts = wrap(last, room, break_on_hyphens=False)
        first = [_short(cell, width, terminal) for cell, width in zip(cells, widths, strict=False)]
        empty = [""] * len(cells)
        for number, part in enumerate(parts):
            found.append([*(empty if number else first), _short(part, room, terminal)])
    return found


def _short(cell: str, width: int, terminal: Terminal) -> str:
    """Return a cell of at most `width` columns: the start of a sentence, both ends of a name."""
    return (clipped if " " in cell else shortened)(cell, width, terminal.cut)


def _text(lines: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    gap = " " * _GAP
    return "".join(
        gap.join(padded(cell, width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )
