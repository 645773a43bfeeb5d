# SPDX-License-Identifier: Apache-2.0
"""The picture in a terminal: a box for each GPU, as wide as the terminal, with its cells.

Colour adds nothing to the words. A cell that is too narrow for words has a letter, and a line below
the box has its words.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from gpuhook.errors import printable
from gpuhook.host.terminal.display_width import clipped, padded, shortened, width_of
from gpuhook.map.map_model import FREE, HELD, LOST, OVER, UNCUT, WORDS, Bar, Cell, Picture
from gpuhook.usage.display_names import short_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

NARROWEST = 40  # columns of a terminal
WIDEST = 10_000
_READABLE = 11  # columns of a cell with words in it
_NARROWEST_CELL = 2  # columns of a cell with its border
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MAX_TEXT = 300
_COLOURS = {FREE: "2", HELD: "36", OVER: "1;31", UNCUT: "2", LOST: "31"}
_BOLD, _DIM = "1", "2"


@dataclass(frozen=True, slots=True)
class Signs:
    """The characters of lines and bars."""

    corners: tuple[str, str, str, str]
    across: str
    down: str
    tees: tuple[str, str]  # at the top, at the bottom
    full: str
    empty: str
    cut: str


FINE = Signs(("╭", "╮", "╰", "╯"), "─", "│", ("┬", "┴"), "█", "░", "…")
ASCII = Signs(("+", "+", "+", "+"), "-", "|", ("+", "+"), "#", ".", "~")


def text(picture: Picture, width: int, *, signs: Signs = FINE, has_colour: bool = False) -> str:
    """Return the picture as lines of at most `width` columns, and at most WIDEST."""
    drawing = _Drawing(min(max(NARROWEST, width), WIDEST), signs, has_colour=has_colour)
    return "\n".join(drawing.lines(picture)) + "\n"


class _Drawing:
    def __init__(self, width: int, signs: Signs, *, has_colour: bool) -> None:
        self._width = width
        self._signs = signs
        self._has_colour = has_colour

    def lines(self, picture: Picture) -> list[str]:
        head = self._between(picture.node, picture.when)
        found = [self._paint(head, _BOLD)]
        if picture.summary:
            found += textwrap.wrap(self._plain(picture.summary), self._width)
        for bar in picture.bars:
            found += ["", *self._bar(bar)]
        if not picture.bars:
            found += ["", "No GPUs."]
        return found

    def _bar(self, bar: Bar) -> list[str]:
        head = self._paint(self._between(bar.heading, bar.usage), _BOLD)
        widths = _widths([cell.part for cell in bar.cells], self._width - 1)
        is_readable = all(map(_is_readable, bar.cells, widths))
        body = self._box_with_words(bar, widths) if is_readable else self._box_with_letters(bar)
        notes = [self._cut(f"  {note}", self._width) for note in bar.notes]
        return [head, *body, *(self._paint(note, _DIM) for note in notes)]

    def _box_with_words(self, bar: Bar, widths: Sequence[int]) -> list[str]:
        """Return a box whose cells have all words."""
        cells = list(zip(bar.cells, widths, strict=True))
        rows = [[self._row(cell, width - 1, row) for cell, width in cells] for row in range(3)]
        if any(cell.image for cell in bar.cells):
            rows.insert(1, [self._image(cell, width - 1) for cell, width in cells])
        down = self._signs.down
        lines = [down + down.join(row) + down for row in rows]
        return [self._edge(widths, top=True), *lines, self._edge(widths, top=False)]

    def _row(self, cell: Cell, width: int, number: int) -> str:
        if number == 0:
            names = [cell.mark + name for name in cell.names]
            words = next((name for name in names if width_of(name) <= width), names[-1])
            shown = self._fit(self._shortened(words, width), width)
            return self._paint(shown, _COLOURS[cell.state])
        label = cell.label if cell.state != UNCUT else ""
        if not cell.holder:
            facts = [fact for fact in (label, cell.memory) if fact]
            words = facts[number - 1] if number <= len(facts) else ""
            return self._paint(self._fit(words, width), _DIM)
        if number == 1:
            busy = f"{cell.percent}%" if cell.percent is not None else ""
            choices = ((label, cell.memory, busy), (label, cell.memory), (cell.memory,))
            texts = [" ".join(filter(None, facts)) for facts in choices]
            return self._fit(
                next((one for one in texts if width_of(one) <= width), texts[-1]), width
            )
        return self._paint(self._level(cell, width), _COLOURS[cell.state])

    def _image(self, cell: Cell, width: int) -> str:
        return self._fit(short_image(cell.image, width) if cell.image else "", width)

    def _level(self, cell: Cell, width: int) -> str:
        """Return the bar of the memory in use, blank if it is unknown."""
        if not cell.holder or cell.used is None:
            return " " * width
        filled = min(width, round(cell.level * width) or (1 if cell.used else 0))
        return self._signs.full * filled + self._signs.empty * (width - filled)

    def _box_with_letters(self, bar: Bar) -> list[str]:
        """Return rows with a letter for each holder, and a line for each letter."""
        letters, down = iter(_LETTERS), self._signs.down
        lines, legend = [], []
        most = (self._width - 1) // _NARROWEST_CELL
        for start in range(0, len(bar.cells), most):
            cells = bar.cells[start : start + most]
            widths = _widths([cell.part for cell in cells], self._width - 1)
            named = [(cell, next(letters, "*") if _has_letter(cell) else " ") for cell in cells]
            row = [
                self._paint(letter + self._level(cell, width - 2), _COLOURS[cell.state])
                for (cell, letter), width in zip(named, widths, strict=True)
            ]
            lines += [self._edge(widths, top=True), down + down.join(row) + down]
            lines.append(self._edge(widths, top=False))
            legend += [self._legend_line(cell, letter) for cell, letter in named if letter != " "]
        free = sum(1 for cell in bar.cells if cell.state == FREE)
        return [*lines, *legend, *([self._paint(f"  {free} free", _DIM)] if free else [])]

    def _legend_line(self, cell: Cell, letter: str) -> str:
        """Return the words of a cell with a letter; of a long name, both ends."""
        name = cell.holder or WORDS[cell.state]
        facts = (cell.label, cell.mark + name, cell.memory, cell.busy)
        rest = width_of("  ".join(fact for fact in facts if fact)) - width_of(name) + len("  a ")
        short = self._shortened(name, max(_READABLE, self._width - rest))
        words = "  ".join(fact for fact in (facts[0], cell.mark + short, *facts[2:]) if fact)
        image = f"  {short_image(cell.image)}" if cell.image else ""
        if width_of(f"  {letter} {words}{image}") <= self._width:
            words += image
        shown = self._cut(f"  {letter} {words}", self._width)
        return self._paint(shown, "" if cell.state == HELD else _COLOURS[cell.state])

    def _edge(self, widths: Sequence[int], *, top: bool) -> str:
        first, last = self._signs.corners[:2] if top else self._signs.corners[2:]
        tee = self._signs.tees[0 if top else 1]
        return first + tee.join(self._signs.across * (width - 1) for width in widths) + last

    def _between(self, left: str, right: str) -> str:
        """Return two texts at the ends of a line; the left one is cut."""
        right = self._plain(right)
        room = self._width - width_of(right) - 2
        if room < _READABLE:
            return self._cut(f"{left}  {right}", self._width)
        return self._fit(left, room) + "  " + right if right else self._cut(left, self._width)

    def _plain(self, words: str) -> str:
        """Return text without control characters, in the characters of this terminal."""
        shown = printable(words, _MAX_TEXT)
        if self._signs is ASCII:
            shown = shown.replace("·", "-").encode("ascii", "replace").decode("ascii")
        return shown

    def _cut(self, words: str, width: int) -> str:
        words = self._plain(words)
        return clipped(words, width, self._signs.cut)

    def _shortened(self, name: str, width: int) -> str:
        return shortened(self._plain(name), width, self._signs.cut)

    def _fit(self, words: str, width: int) -> str:
        return padded(self._cut(words, width), width)

    def _paint(self, words: str, colour: str) -> str:
        return f"\x1b[{colour}m{words}\x1b[0m" if self._has_colour and colour and words else words


def _is_readable(cell: Cell, width: int) -> bool:
    """Return whether a cell of this width can have words, shortened a little."""
    return width > (
        _READABLE if cell.holder or cell.state == LOST else max(4, width_of(cell.label))
    )


def _has_letter(cell: Cell) -> bool:
    return bool(cell.holder) or cell.state == LOST


def _widths(parts: Sequence[float], width: int) -> list[int]:
    """Return the columns of each part with its right border; the sum is `width`.

    Each has at least the columns of the narrowest cell; `width` must be large enough.

    >>> _widths([0.5, 0.25, 0.25], 80), _widths([0.98, 0.01, 0.01], 20)
    ([39, 21, 20], [16, 2, 2])
    """
    whole = sum(parts) or 1.0
    room = width - _NARROWEST_CELL * len(parts)
    ends, reached = [], 0.0
    for part in parts:
        reached += part
        ends.append(round(max(0, room) * reached / whole))
    return [_NARROWEST_CELL + end - start for start, end in zip([0, *ends], ends)]
