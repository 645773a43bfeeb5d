# SPDX-License-Identifier: Apache-2.0
"""The figures of the documentation, which benchmarks and long tests have written.

docs/reference/figures has a file of JSON for each of them (tests/figures.py).
"""

from __future__ import annotations

import json

from generate.pages import CHECKOUT, page, table_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/reference/performance.md"
SOURCES = CHECKOUT / "docs/reference/figures"
_KEYS = {"what", "value", "limit", "command", "measured"}
# The files of each page, and their sections.
_SECTIONS = {
    PAGE: {
        "bench_containers": "Starting a container",
        "bench_commands": "Commands",
        "bench_plugin": "The device plugin",
        "bench_dra": "The DRA driver",
        "bench_nri": "The NRI plugin",
    },
    "docs/concepts/security.md": {},
}


def files() -> dict[str, str]:
    """Return the page with its current figures, by its path in the checkout.

    Raises ValueError for a file that no page has.
    """
    if unknown := {path.stem for path in SOURCES.glob("*.json")} - names():
        raise ValueError(f"packaging/generate/figures.py lacks a section for {sorted(unknown)}")
    return page(PAGE, tables(PAGE))


def names() -> set[str]:
    """Return the names of the files, without their endings."""
    return {name for sections in _SECTIONS.values() for name in sections}


def tables(path: str, level: str = "##") -> str:
    """Return the sections of a page's figures, in Markdown."""
    sections = _SECTIONS[path].items()
    return "\n".join(_section(level, title, SOURCES / f"{name}.json") for name, title in sections)


def _section(level: str, title: str, source: Path) -> str:
    """Return a table, with the command and the last day that measured it below."""
    rows = json.loads(source.read_text(encoding="utf-8"))
    for one in rows:
        if one.keys() != _KEYS:
            raise ValueError(f"{source}: {one} must have the keys {', '.join(sorted(_KEYS))}")
    has_limits = any(one["limit"] for one in rows)
    columns = ("what", "value", "limit") if has_limits else ("what", "value")
    heads = {"what": "what was measured", "value": "figure", "limit": "limit"}
    lines = [
        f"{level} {title}",
        "",
        table_row(*(heads[column] for column in columns)),
        f"|{'---|' * len(columns)}",
        *(table_row(*(one[column] for column in columns)) for one in rows),
        "",
        *_commands(rows),
    ]
    return "\n".join(lines) + "\n"


def _commands(rows: list[dict[str, str]]) -> list[str]:
    """Return the sentences that name the commands, with the day of their last run."""
    days: dict[str, str] = {}
    for one in rows:
        days[one["command"]] = max(days.get(one["command"], ""), one["measured"])
    return [f"Measured by `{command}` on {day}." for command, day in days.items()]
