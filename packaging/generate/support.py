# SPDX-License-Identifier: Apache-2.0
"""The engines of docs/support.md: what tests have run, and what was seen by hand.

tested.json has what the tests of `make test-engines` report, seen.yaml what people have run.
"""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import yaml

from generate.pages import page, table_row

PAGE = "docs/support.md"
SOURCES = Path(__file__).parents[2] / "docs/support"
_TESTED = {"engine", "version", "integration", "with_"}
_SEEN = {"engine", "version", "date", "what"}
# Of what was seen on a machine: by the section of the page.
_BY_HAND = {"clusters": "Seen on a real cluster", "gpus": "Seen on a real GPU"}
_RUN = {"date", "about", "scenarios", "faults", "fixes", "left_out"}
_WIDTH = 120
_ENGINES = ("Docker", "containerd", "podman")  # the first; others follow by name
_ROOTLESS = "rootless"
_HEAD = """\
## Engines

`make test-engines` runs these engines of Debian 12, 13 and its next release, each with gpuhook's
packages and eight simulated GPUs, and looks at a container from inside. A cell has what a test
has run it with: low-level runtimes, further programs, cgroup versions. "Not tested" is an
integration that no test has run with that version: the version may not have it.

"""
_SCENARIOS = """
| scenario | result |
|---|---|
"""
_FAULTS = """\

These faults were found there and fixed since. Each fix has a test. {fixes}

| fault | see |
|---|---|
"""


def files() -> dict[str, str]:
    """Return the page with its current tables, by its path in the checkout."""
    tested = json.loads((SOURCES / "tested.json").read_text(encoding="utf-8"))
    seen = yaml.safe_load((SOURCES / "seen.yaml").read_text(encoding="utf-8"))
    return page(PAGE, tables(tested, seen))


def tables(tested: list[dict[str, str]], seen: dict[str, list[dict[str, Any]]]) -> str:
    """Return the generated part: a section for each engine, then what people have run.

    Raises ValueError for a source with other keys.
    """
    for row in tested:
        _require_keys(row, _TESTED, "tested.json")
    for row in seen["engines"]:
        _require_keys(row, _SEEN, "seen.yaml, engines")
    for key in _BY_HAND:
        for one in seen[key]:
            _require_keys(one, _RUN, f"seen.yaml, {key}")
    known = {row["engine"] for row in (*tested, *seen["engines"])}
    sections = [
        _engine(
            name,
            [row for row in tested if row["engine"] == name],
            [row for row in seen["engines"] if row["engine"] == name],
        )
        for name in sorted(known, key=_engine_order)
    ]
    runs = [
        text
        for key, title in _BY_HAND.items()
        if seen[key]
        for text in (f"## {title}\n", *map(_run, seen[key]))
    ]
    return _HEAD + "\n".join((*sections, *runs))


def _require_keys(row: dict[str, Any], keys: set[str], source: str) -> None:
    if row.keys() != keys:
        raise ValueError(
            f"docs/support/{source}: {row} must have the keys {', '.join(sorted(keys))}"
        )


def _engine_order(name: str) -> tuple[int, str]:
    place = _ENGINES.index(name) if name in _ENGINES else len(_ENGINES)
    return (place, name.lower())


def _engine(name: str, tested: list[dict[str, str]], seen: list[dict[str, Any]]) -> str:
    """Return the section of an engine: integrations by version, then what was seen."""
    lines = [f"### {name}", ""]
    if tested:
        versions = sorted({row["version"] for row in tested}, key=_version_order)
        lines += [table_row("tested", *versions), f"|{'---|' * (len(versions) + 1)}"]
        integrations = dict.fromkeys(row["integration"] for row in tested)
        lines += [
            table_row(one, *(_cell(tested, one, version) for version in versions))
            for one in integrations
        ]
        lines.append("")
    for row in seen:
        lines += [f"Seen on {row['date']}, version {row['version']}: {row['what']}.", ""]
    return "\n".join(lines)


def _cell(tested: list[dict[str, str]], integration: str, version: str) -> str:
    """Return what an integration was tested with; "tested" if that is nothing in particular.

    A row with `runc 1.3.6, rootless` adds to that of `runc 1.3.6`.
    """
    found = {
        row["with_"] or "tested"
        for row in tested
        if (row["integration"], row["version"]) == (integration, version)
    }
    rootless = {one for one in found if one.endswith(_ROOTLESS)}
    of_root = found - rootless
    of_user = {one.removesuffix(_ROOTLESS).rstrip(", ") or "tested" for one in rootless}
    texts = [f"{one}{_users(one, of_root, of_user)}" for one in sorted(of_root | of_user)]
    return ", ".join(texts) or "not tested"


def _users(one: str, of_root: set[str], of_user: set[str]) -> str:
    if one not in of_user:
        return ""
    return " (also rootless)" if one in of_root else " (rootless)"


def _version_order(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


def _run(one: dict[str, Any]) -> str:
    text = _paragraph(f"Run by hand on {one['date']}: {one['about']}") + _SCENARIOS
    text += "".join(table_row(row["scenario"], row["result"]) + "\n" for row in one["scenarios"])
    if one["faults"]:
        text += _FAULTS.format(fixes=one["fixes"])
        text += "".join(table_row(row["fault"], row["see"]) + "\n" for row in one["faults"])
    left_out = _paragraph(f"Not tested: {one['left_out']}.")
    return f"{text}\n{left_out}"


def _paragraph(text: str) -> str:
    return textwrap.fill(text, _WIDTH, break_on_hyphens=False) + "\n"
