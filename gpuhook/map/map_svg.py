# SPDX-License-Identifier: Apache-2.0
"""The picture as SVG: a card for each GPU, one below the other, and a key.

It has only plain shapes and text, so all viewers show the same. The title of a cell is its whole
sentence: screen readers read it, and browsers show it under the pointer.
"""

from __future__ import annotations

import html
import textwrap

from gpuhook.errors import printable
from gpuhook.host.terminal.display_width import clipped, shortened, width_of
from gpuhook.map import svg_style
from gpuhook.map.map_model import FREE, HELD, LOST, OVER, UNCUT, WORDS, Bar, Cell, Picture
from gpuhook.usage.display_names import short_image

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_WIDTH = 1120
_MARGIN = 32
_PADDING = 18
_BAR_TOP, _BAR_HEIGHT = 44, 93
_GAP = 4  # between cells
_LINE = 19  # from one line of text to the next
_LEGEND_COLUMNS = 3
_WORDED = 84  # pixels; narrower cells have no words
_EM = 0.56  # width by height of a letter, the average of sans-serif fonts
_MAX_TEXT = 300
_MAX_WARNING = 1000
_KEY_HEIGHT = 18
_KEY_STATES = (HELD, OVER, FREE, UNCUT, LOST)


def text(picture: Picture) -> str:
    """Return a whole SVG file."""
    warnings = [line for one in picture.warnings for line in _warning_lines(one)]
    parts, top = [], 96 + _LINE * len(warnings)
    for bar in picture.bars:
        drawn, height = _card(bar)
        parts.append(f'<g transform="translate({_MARGIN} {top})">{drawn}</g>')
        top += height + 16
    parts.append(f'<g transform="translate({_MARGIN} {top + 6})">{_key(picture)}</g>')
    whole, width = top + _KEY_HEIGHT + _MARGIN, _WIDTH + 2 * _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {whole}" width="{width}" '
        f'height="{whole}" role="img" aria-labelledby="map-title map-desc">\n'
        f'<title id="map-title">GPUs of {shown(picture.node)}</title>\n'
        f'<desc id="map-desc">{shown(_description(picture), 100_000)}</desc>\n'
        f"<style>{svg_style.STYLE}</style>\n{_HATCH}\n"
        f'<rect class="back" width="{width}" height="{whole}"/>\n'
        f"{_head(picture, warnings)}\n" + "\n".join(parts) + "\n</svg>\n"
    )


_HATCH = (
    '<defs><pattern id="hatch" width="12" height="12" patternUnits="userSpaceOnUse" '
    'patternTransform="rotate(45)"><rect class="hatch-back" width="12" height="12"/>'
    '<line class="hatch" x1="3" y1="0" x2="3" y2="12"/></pattern></defs>'
)


def _description(picture: Picture) -> str:
    """Return the whole picture in words."""
    words = [f"{picture.summary}."]
    for bar in picture.bars:
        cells = "; ".join(cell.sentence for cell in bar.cells)
        words.append(f"{bar.sentence}: {cells}.")
        words += [f"{note}." for note in bar.notes]
    return " ".join([*words, *picture.warnings])


def shown(words: str, limit: int = _MAX_TEXT) -> str:
    """Return text on one line, with markup escaped."""
    return html.escape(printable(words, limit))


def _warning_lines(words: str) -> list[str]:
    return textwrap.wrap(f"! {printable(words, _MAX_WARNING)}", int(_WIDTH / (13 * _EM)))


def _head(picture: Picture, warnings: Iterable[str]) -> str:
    top = 46
    lines = [
        _text("title", _MARGIN, top, f"GPUs of {picture.node}"),
        _text("soft end", _WIDTH + _MARGIN, top, picture.when),
        _text("words", _MARGIN, top + 26, picture.summary),
    ]
    lines += [
        _text("overname", _MARGIN, top + 26 + _LINE * (number + 1), line)
        for number, line in enumerate(warnings)
    ]
    return "".join(lines)


def _card(bar: Bar) -> tuple[str, int]:
    """Return a GPU as the content of a group of width _WIDTH, and its height."""
    inner = _WIDTH - 2 * _PADDING
    spans = list(_spans(bar.cells, inner))
    cells = [_cell(cell, left, width) for cell, left, width in spans]
    tight = [cell for cell, _, width in spans if width < _WORDED and cell.holder]
    lines, top = [], _BAR_TOP + _BAR_HEIGHT + 8
    for number, cell in enumerate(tight):
        column, row = number % _LEGEND_COLUMNS, number // _LEGEND_COLUMNS
        left = _PADDING + column * (inner // _LEGEND_COLUMNS)
        words = _line_below(cell, inner // _LEGEND_COLUMNS - 12)
        lines.append(_text("small", left, top + _LINE * (row + 1) - 5, words))
    top += _LINE * -(-len(tight) // _LEGEND_COLUMNS)
    for note in bar.notes:
        top += _LINE
        lines.append(_text("soft", _PADDING, top - 5, _cut(note, inner, 12.5)))
    height = top + (10 if lines else 8)
    title = f"<title>{shown(bar.sentence)}</title>"
    frame = (
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="12"/>'
    )
    body = "".join([title, frame, _heading(bar), *cells, *lines])
    return f'<g role="group" aria-label="{shown(bar.sentence)}">{body}</g>', height


def _heading(bar: Bar) -> str:
    usage = _text("words end", _WIDTH - _PADDING, 28, bar.usage)
    room = _WIDTH - 2 * _PADDING - _text_width(bar.usage, 13) - _text_width(bar.uuid, 13) - 110
    words = [
        ("words", _cut(bar.name, room, 13)),
        ("uuid", bar.uuid if bar.uuid != bar.index else ""),
    ]
    spans = "".join(
        f'<tspan class="{style}" dx="12">{shown(word)}</tspan>' for style, word in words if word
    )
    first = f'<tspan class="gpu">{shown(bar.title)}</tspan>'
    return f'<text x="{_PADDING}" y="28">{first}{spans}</text>{usage}'


def _spans(cells: Sequence[Cell], width: int) -> Iterator[tuple[Cell, float, float]]:
    """Yield each cell with its left edge and its width."""
    whole = sum(cell.part for cell in cells) or 1.0
    left = float(_PADDING)
    for cell in cells:
        own = (width + _GAP) * cell.part / whole
        yield cell, left, max(1.0, own - _GAP)
        left += own


def _cell(cell: Cell, left: float, width: float) -> str:
    box = _box(cell.state, left, _BAR_TOP, width, _BAR_HEIGHT, min(8.0, width / 3))
    parts = [f"<title>{shown(cell.sentence)}</title>", box, *_words(cell, left, width)]
    if cell.holder:
        parts += _meter(cell, left, width)
    return f'<g role="img" aria-label="{shown(cell.sentence)}">{"".join(parts)}</g>'


def _words(cell: Cell, left: float, width: float) -> Iterator[str]:
    """Yield the lines of text of a cell that fit into it."""
    room, middle = width - 20, left + width / 2
    names = [cell.mark + name for name in cell.names]
    label = "" if cell.state == UNCUT else cell.label
    if width < _WORDED:
        short = label or (cell.names[0] if not cell.holder else "")
        for number, word in enumerate(short.split()):
            if _text_width(word, 12) <= width - 4:
                yield _text("small middle", middle, _BAR_TOP + 22 + 17 * number, word)
        return
    name = next((name for name in names if _text_width(name, 13.5) <= room), names[-1])
    style = {OVER: "overname", LOST: "lostname", HELD: "name"}.get(cell.state, "small")
    under = " clear" if cell.state in {LOST, UNCUT} else ""  # readable on the hatching
    yield _text(style + under, left + 10, _BAR_TOP + 21, _shortened(name, room, 13.5))
    image = [_cut(short_image(cell.image, _letters(room, 12)), room, 12)] if cell.image else []
    facts = _wrapped((label, cell.memory, cell.busy), room)
    for number, words in enumerate([*image, *facts]):
        yield _text("small" + under, left + 10, _BAR_TOP + 37 + 15 * number, words)


def _wrapped(facts: Sequence[str], room: float) -> list[str]:
    """Return facts as at most two lines of text; longer ones are cut."""
    lines: list[str] = []
    for fact in filter(None, facts):
        whole = f"{lines[-1]} · {fact}" if lines else fact
        if lines and _text_width(whole, 12) <= room:
            lines[-1] = whole
        elif len(lines) < 2:
            lines.append(_cut(fact, room, 12))
    return lines


def _meter(cell: Cell, left: float, width: float) -> Iterator[str]:
    """Yield the bar of the memory in use."""
    side = 10 if width >= _WORDED else min(5.0, width / 6)
    start, long, top = left + side, width - 2 * side, _BAR_TOP + _BAR_HEIGHT - 19
    yield _box(f"{cell.state}-rest", start, top, long, 10, 3)
    if cell.used:
        yield _box(f"{cell.state}-full", start, top, max(2.0, long * cell.level), 10, 3)


def _line_below(cell: Cell, room: float) -> str:
    """Return the line below the bar for a cell that is too narrow for words."""
    facts = (cell.mark + cell.label, cell.holder, cell.memory, cell.busy)
    rest = _text_width(" · ".join(fact for fact in facts if fact), 12) - _text_width(
        cell.holder, 12
    )
    name = _shortened(cell.holder, max(room / 3, room - rest), 12)
    return _cut(" · ".join(fact for fact in (facts[0], name, *facts[2:]) if fact), room, 12)


def _key(picture: Picture) -> str:
    """Return the legend of the colours, as the content of a group."""
    states = {cell.state for bar in picture.bars for cell in bar.cells}
    parts, left = [], 0.0
    for state in (one for one in _KEY_STATES if one in states):
        words = "! held, above its share" if state == OVER else WORDS[state]
        parts.append(_box(state, left + 0.5, 0.5, 26, 15, 4))
        if state in {HELD, OVER}:
            parts.append(_box(f"{state}-full", left + 5, 5, 11, 6, 2))
        parts.append(_text("small", left + 34, 12.5, words))
        left += 34 + _text_width(words, 12) + 26
    if states & {HELD, OVER}:
        parts.append(_text("small", left, 12.5, "filled: memory in use"))
    return "".join(parts)


def _text(style: str, left: float, top: float, words: str) -> str:
    if not words:
        return ""
    return f'<text class="{style}" x="{left:.1f}" y="{top:.1f}">{shown(words)}</text>'


def _box(  # noqa: PLR0917 # as a rectangle in SVG
    style: str, left: float, top: float, width: float, height: float, round_: float
) -> str:
    return (
        f'<rect class="{style}" x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="{round_:.1f}"/>'
    )


def _text_width(words: str, height: float) -> float:
    """Return the approximate width of text in pixels."""
    return width_of(printable(words, _MAX_TEXT)) * height * _EM


def _letters(room: float, height: float) -> int:
    return max(1, int(room / (height * _EM)))


def _cut(words: str, room: float, height: float) -> str:
    return clipped(printable(words, _MAX_TEXT), _letters(room, height))


def _shortened(name: str, room: float, height: float) -> str:
    return shortened(printable(name, _MAX_TEXT), _letters(room, height))
