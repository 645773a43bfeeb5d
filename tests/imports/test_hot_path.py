# SPDX-License-Identifier: Apache-2.0
"""What a container's start imports: no clock is involved, only sys.modules and an allow-list."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.imports.marks import excess, loaded, marked, path_of

SYSTEM = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
MARKS = marked()
ENTRIES = {"gpuhook.entry.runtime": "HOT", "gpuhook.entry.hooks.hook": "WARM"}


@pytest.mark.parametrize("module", MARKS)
def test_loads_only_what_is_allowed(module: str) -> None:
    """A module loads nothing beyond the allow-list of its mark and modules that are as hot."""
    assert excess(SYSTEM, module, MARKS[module]) == set()


@pytest.mark.parametrize("module", ENTRIES)
def test_programs_are_marked(module: str) -> None:
    """The wrapper's program is HOT and the hook's is WARM."""
    assert MARKS.get(module) == ENTRIES[module]


@pytest.mark.parametrize("module", [m for m, mark in MARKS.items() if mark == "HOT"])
def test_hot_functions_import_hot_modules(module: str) -> None:
    """What a function of a HOT module imports late from the package is HOT as well."""
    tree = ast.parse(path_of(module).read_text(encoding="utf-8"))
    late = set()
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            late |= {name for node in ast.walk(function) for name in _imported(node)}
    assert {name for name in late if MARKS.get(name) != "HOT"} == set()


@pytest.mark.parametrize(
    "module", ["gpuhook.entry.create", "gpuhook.entry.hooks.apply_hook", "gpuhook.entry.hooks.hook"]
)
def test_who_has_no_limit_pays_for_none(module: str) -> None:
    """What memory limits need is loaded for a container that has one, and for no other."""
    modules = loaded(SYSTEM, module)
    own = {"gpuhook.request.memory_request", "gpuhook.entry.hooks.limit_hook"}
    assert modules.isdisjoint(own)
    assert [name for name in modules if name.startswith("gpuhook.memory_limits")] == []


@pytest.mark.parametrize(
    "module",
    ["gpuhook.entry.create", "gpuhook.entry.hooks.apply_hook", "gpuhook.entry.hooks.prestart_hook"],
)
def test_who_requires_nothing_pays_for_no_judge(module: str) -> None:
    """What reads NVIDIA_REQUIRE_* is loaded for a container that has such a variable."""
    own = {"requirement_check", "requirements"}
    assert loaded(SYSTEM, module).isdisjoint(f"gpuhook.vendors.nvidia.hot.{name}" for name in own)


def test_a_plain_create_pays_for_no_other_names() -> None:
    """Who requests GPUs as specs name them loads nothing of notes, faults and stale specs."""
    own = {"cdi.hot.unknown_device", "apply.spec.spec_undo", "entry.spec_refresh"}
    own |= {"errors.messages", "request.annotation_origin", "request.extra_requests"}
    own |= {"vendors.interface"}
    late = ("extras", "node_json", "device_names")
    own |= {f"vendors.nvidia.hot.{name}" for name in late}
    assert loaded(SYSTEM, "gpuhook.entry.create").isdisjoint(f"gpuhook.{name}" for name in own)


@pytest.mark.parametrize(
    "module",
    ["gpuhook.entry.create", "gpuhook.entry.hooks.apply_hook", "gpuhook.entry.hooks.prestart_hook"],
)
def test_a_container_of_one_vendor_loads_no_other(module: str) -> None:
    """What serves AMD GPUs is loaded for a container that names some."""
    modules = loaded(SYSTEM, module)
    assert [name for name in modules if name.startswith("gpuhook.vendors.amd")] == []


def test_who_asks_for_nothing_loads_no_vocabulary() -> None:
    """A config.json without our marks is passed on by who knows the marks alone."""
    own = {"request.parse", "vendors.nvidia.hot.vocabulary"}
    assert loaded(SYSTEM, "gpuhook.entry.runtime").isdisjoint(f"gpuhook.{name}" for name in own)


def test_the_list_would_notice() -> None:
    """The comparison sees a forbidden import: json and what it drags in, ctypes in HOT."""
    assert {"json", "re", "enum"} <= loaded(SYSTEM, "json")
    assert "ctypes" in excess(SYSTEM, "ctypes", "HOT")
    assert excess(SYSTEM, "ctypes", "WARM") == set()
    assert excess(SYSTEM, "struct", "HOT") == set()


def _imported(node: ast.AST) -> set[str]:
    """Return the modules of the package that an import statement names; rooms are none."""
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    named = {n: path_of(n) for n in names if n.startswith("gpuhook.")}
    return {n for n, path in named.items() if path.exists() and path.name != "__init__.py"}
