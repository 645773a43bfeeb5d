# SPDX-License-Identifier: Apache-2.0
"""The figures of the documentation, which benchmarks and long tests have written.

docs/reference/figures has a file of JSON for each of them (tests/figures.py).
"""

from __future__ import annotations

import json

from generate.pages import CHECKOUT, page, table_row

PAGE = "docs/reference/performance.md"
SOURCES = CHECKOUT / "docs/reference/figures"
_KEYS = {"what", "value", "limit", "command", "measured"}
# The sections of benchmarks, by their file, in the page's order.
_BENCHMARKS = {
    "bench_containers": "Starting a container",
    "bench_commands": "Commands",
    "bench_plugin": "The device plugin",
    "bench_dra": "The DRA driver",
    "bench_nri": "The NRI plugin",
}


def files() -> dict[str, str]:
    """Return the page with the current figures of benchmarks, by its path in the checkout."""
    sections = [_section("##", title, f"{name}.json") for name, title in _BENCHMARKS.items()]
    return page(PAGE, "\n".join(sections))


def long_tests(level: str) -> str:
    """Return the sections of the long tests, in Markdown."""
    names = sorted({path.stem for path in SOURCES.glob("*.json")} - _BENCHMARKS.keys())
    titles = [name.replace("_", " ").capitalize() for name in names]
    sections = zip(titles, names, strict=True)
    return "\n".join(_section(level, title, f"{name}.json") for title, name in sections)


def _section(level: str, title: str, name: str) -> str:
    """Return a table, with the command and the last day that measured it below."""
    source = SOURCES / name
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
