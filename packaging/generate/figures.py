# SPDX-License-Identifier: Apache-2.0
"""The figures of the documentation, which benchmarks and long tests have written.

docs/reference/figures has a file of JSON for each of them (tests/figures.py).
"""

from __future__ import annotations

import ast
import json

from generate.pages import CHECKOUT, page, table_row

PAGE = "docs/reference/performance.md"
LONG_TESTS = "docs/reference/long-tests.md"
TESTS = CHECKOUT / "tests"
SOURCES = CHECKOUT / "docs/reference/figures"
_KEYS = {"what", "value", "limit", "command", "measured"}
_NAMES = {"cdi": "CDI", "dra": "DRA", "go": "Go", "json": "JSON", "nri": "NRI", "toml": "TOML"}
# The sections of benchmarks, by their file, in the page's order.
_BENCHMARKS = {
    "bench_containers": "Starting a container",
    "bench_commands": "Commands",
    "bench_plugin": "The device plugin",
    "bench_dra": "The DRA driver",
    "bench_nri": "The NRI plugin",
}


def files() -> dict[str, str]:
    """Return the pages with the current figures, by their paths in the checkout."""
    benchmarks = [_section(title, f"{name}.json") for name, title in _BENCHMARKS.items()]
    others = sorted(p.stem for p in SOURCES.glob("*.json") if p.stem not in _BENCHMARKS)
    long_tests = [_section(_title(name), f"{name}.json", _about(name)) for name in others]
    return {**page(PAGE, "\n".join(benchmarks)), **page(LONG_TESTS, "\n".join(long_tests))}


def _title(name: str) -> str:
    words = [_NAMES.get(word, word) for word in name.split("_")]
    return " ".join([words[0][0].upper() + words[0][1:], *words[1:]])


def _about(name: str) -> str:
    """Return what a test's docstring says, and its path."""
    (path,) = [*TESTS.rglob(f"test_{name}.py"), *TESTS.glob(f"{name}/__main__.py")]
    first = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").splitlines()[0]
    return f"{first} (`{path.relative_to(CHECKOUT)}`)"


def _section(title: str, name: str, about: str = "") -> str:
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
        f"## {title}",
        "",
        *([about, ""] if about else []),
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
