# SPDX-License-Identifier: Apache-2.0
"""Generate the table of doctor's checks in docs/doctor.md from the checks."""

from __future__ import annotations

from pathlib import Path

from gpuhook.doctor.check_list import checks

CHECKOUT = Path(__file__).parents[2]
PAGE = "docs/doctor.md"
BEGIN, END = "<!-- make generate writes this table. -->", "<!-- End of it. -->"


def files() -> dict[str, str]:
    """Return the page with the current table, by its path in the checkout."""
    head, begin, rest = (CHECKOUT / PAGE).read_text(encoding="utf-8").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{PAGE} lacks the lines {BEGIN} and {END}")
    return {PAGE: f"{head}{BEGIN}\n\n{table()}\n{END}{tail}"}


def table() -> str:
    """Return a row for each check: its id, its title, and the checks that it waits for."""
    lines = ["| check | makes sure that | waits for |", "|---|---|---|"]
    for one in checks():
        needs = ", ".join(f"`{need}`" for need in one.needs)
        lines.append(f"| `{one.id}` | {one.title.replace('|', chr(92) + '|')} | {needs} |")
    return "\n".join(lines) + "\n"
