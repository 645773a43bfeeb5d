# SPDX-License-Identifier: Apache-2.0
"""Plain tables: upper-case headers, two spaces between columns, no borders."""

from __future__ import annotations

from gpuhook.errors import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_MAX_CELL = 1 << 16


def table(headers: Sequence[str] | None, rows: Sequence[Sequence[str]]) -> str:
    """Return the rows as lines of text, each column as wide as its widest cell."""
    # Containers choose the text of cells (annotations, variables): no terminal interprets it.
    shown = [[printable(cell, _MAX_CELL) for cell in row] for row in rows]
    lines = ([headers] if headers else []) + shown
    if not lines:
        return ""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        + "\n"
        for line in lines
    )


def counted(count: int, what: str, several: str = "") -> str:
    """Return a number with its noun: "1 mount", "22 mounts"."""
    return f"{count:,} {what if count == 1 else several or what + 's'}"
