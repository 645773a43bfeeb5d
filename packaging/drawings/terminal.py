# SPDX-License-Identifier: Apache-2.0
"""A terminal with the lines of a command, as SVG."""

from __future__ import annotations

import textwrap
from html import escape

_COLUMNS = 104
_WIDTH, _HEIGHT = 8.4, 20  # pixels of a character
_MARGIN, _BAR = 20, 34
_STYLES = (
    ("$ ", "prompt"),
    ("Root cause:", "failed"),
    ("  FAILED", "failed"),
    ("  warning", "warning"),
)
_LABELS = ("Root cause", "meaning", "fix", "--fix")
_CSS = """\
.frame{fill:#0d1117;stroke:#30363d}
text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#c9d1d9;white-space:pre}
.prompt{fill:#7ee787}.failed{fill:#ff7b72;font-weight:bold}.warning{fill:#e3b341}
.title{fill:#8b949e;text-anchor:middle}"""


def picture(title: str, text: str) -> str:
    """Return the SVG of a terminal; long lines are folded below the text of their first column."""
    lines = [part for line in text.rstrip("\n").split("\n") for part in _folded(line)]
    width = round(2 * _MARGIN + _COLUMNS * _WIDTH)
    height = _BAR + len(lines) * _HEIGHT + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}">\n<style>{_CSS}</style>\n'
        f'<rect class="frame" x=".5" y=".5" width="{width - 1}" height="{height - 1}" rx="8"/>\n'
    )
    dots = "".join(
        f'<circle cx="{20 + 20 * n}" cy="17" r="6" fill="{colour}"/>\n'
        for n, colour in enumerate(("#ff5f56", "#ffbd2e", "#27c93f"))
    )
    name = f'<text class="title" x="{width / 2}" y="22">{escape(title)}</text>\n'
    rows = "".join(
        f'<text x="{_MARGIN}" y="{_BAR + 14 + _HEIGHT * n}">{_coloured(line)}</text>\n'
        for n, line in enumerate(lines)
    )
    return f"{head}{dots}{name}{rows}</svg>\n"


def _folded(line: str) -> list[str]:
    """Return a line in parts that fit; the parts after the first are indented as its text."""
    text = line.lstrip(" ")
    name, colon, rest = text.partition(":")
    begin = len(line) - len(text)
    indent = begin + 4
    if colon and name in _LABELS:
        indent = len(line) - len(rest.lstrip(" "))
    return textwrap.wrap(
        text,
        _COLUMNS,
        initial_indent=" " * begin,
        subsequent_indent=" " * indent,
        replace_whitespace=False,
    ) or [""]


def _coloured(line: str) -> str:
    for begin, style in _STYLES:
        if line.startswith(begin):
            head, rest = line[: len(begin)], line[len(begin) :]
            shown = escape(rest, quote=False)
            return f'<tspan class="{style}">{escape(head, quote=False)}</tspan>{shown}'
    return escape(line, quote=False)
