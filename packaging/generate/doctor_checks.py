# SPDX-License-Identifier: Apache-2.0
"""Generate the table of doctor's checks in docs/reference/doctor.md from the checks."""

from __future__ import annotations

from generate.pages import page
from gpuhook.doctor.check_list import checks


def files() -> dict[str, str]:
    """Return the page with the current table, by its path in the checkout."""
    return page("docs/reference/doctor.md", table())


def table() -> str:
    """Return a row for each check: its id, its title, and the checks that it waits for."""
    lines = ["| check | makes sure that | waits for |", "|---|---|---|"]
    for one in checks():
        needs = ", ".join(f"`{need}`" for need in one.needs)
        lines.append(f"| `{one.id}` | {one.title.replace('|', chr(92) + '|')} | {needs} |")
    return "\n".join(lines) + "\n"
