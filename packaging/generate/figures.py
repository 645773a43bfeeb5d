# SPDX-License-Identifier: Apache-2.0
"""The figures of the documentation, which benchmarks and long tests have written.

docs/reference/figures has a file of JSON for each of them (tests/figures.py).
"""

from __future__ import annotations

import ast
import json

from generate import figure_tables
from generate.pages import CHECKOUT, page

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
# The sections of long tests, in the page's order. Those of other files follow.
_LONG = {
    "fuzz": "Fuzzing",
    "config_json_go": "config.json and Go",
    "config_json_variants": "config.json and the low-level runtimes",
    "cdi_library": "CDI specs and the CDI library",
    "toml_parsers": "TOML files and the parsers of engines",
    "loader_caches": "Loader caches, ldconfig and the loader",
    "device_access": "Device rules and the kernel",
    "create_races": "Races while a container starts",
    "live_races": "Races in a running container",
    "midway": "Changes of a container in the middle of a command",
    "nri_races": "Races in containers that get their GPUs by NRI",
    "killed_writers": "Kills of programs that write files",
    "wrapper_errors": "Errors at system calls of the wrapper",
    "poor_surroundings": "Commands in poor surroundings",
    "many_starts": "Starts in a row",
    "many_attaches": "Attaches in a row",
    "plugin_week": "A week of the device plugin",
    "plugin_load": "The device plugin under load",
    "dra_driver": "The DRA driver",
    "nri_day": "A day of the NRI plugin",
}


def files() -> dict[str, str]:
    """Return the pages with the current figures, by their paths in the checkout."""
    benchmarks = [_section(title, f"{name}.json") for name, title in _BENCHMARKS.items()]
    written = {path.stem for path in SOURCES.glob("*.json")} - _BENCHMARKS.keys()
    others = [*(name for name in _LONG if name in written), *sorted(written - _LONG.keys())]
    long_tests = [_section(_title(name), f"{name}.json", _about(name)) for name in others]
    contents = "".join(f"- [{_title(name)}](#{_anchor(_title(name))})\n" for name in others)
    return {
        **page(PAGE, "\n".join(benchmarks)),
        **page(LONG_TESTS, "\n".join([contents, *long_tests])),
    }


def _anchor(title: str) -> str:
    """Return the name of a section in a link, as GitHub makes it."""
    return "".join(one for one in title.lower() if one.isalnum() or one in " -_").replace(" ", "-")


def _title(name: str) -> str:
    words = " ".join(_NAMES.get(word, word) for word in name.split("_"))
    return _LONG.get(name, words[0].upper() + words[1:])


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
    begin = [f"## {title}", "", *([about, ""] if about else [])]
    return "\n".join([*begin, *figure_tables.lines(rows), "", *_commands(rows)]) + "\n"


def _commands(rows: list[dict[str, str]]) -> list[str]:
    """Return the sentences that name the commands, with the day of their last run."""
    days: dict[str, str] = {}
    for one in rows:
        days[one["command"]] = max(days.get(one["command"], ""), one["measured"])
    return [f"Measured by `{command}` on {day}." for command, day in days.items()]
