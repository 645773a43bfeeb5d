# SPDX-License-Identifier: Apache-2.0
"""Pages of docs/ with a generated part between two comments."""

from __future__ import annotations

from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
BEGIN, END = "<!-- make generate writes this part. -->", "<!-- End of it. -->"


def page(path: str, part: str) -> dict[str, str]:
    """Return the page with its generated part replaced, by its path in the checkout."""
    head, begin, rest = (CHECKOUT / path).read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{path} lacks the lines {BEGIN} and {END}")
    return {path: f"{head}{BEGIN}\n\n{part}\n{END}{tail}"}


def table_row(*cells: str) -> str:
    """Return the row of a table in Markdown."""
    return f"| {' | '.join(cell.strip().replace('|', chr(92) + '|') for cell in cells)} |"
