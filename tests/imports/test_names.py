# SPDX-License-Identifier: Apache-2.0
"""Names of the package: a module is a noun of the field or a command, a class name occurs once."""

from __future__ import annotations

import ast
import collections
from pathlib import Path

import pytest

from tests.imports.marks import PACKAGE

GENERATED = "_pb2"
PATHS = [
    path
    for path in sorted(PACKAGE.rglob("*.py"))
    if not path.stem.startswith("__") and not path.stem.endswith(GENERATED)
]
# Base names of modules that occur twice, each time in a folder that says which one it is.
SHARED = {
    "installation",  # made by `gpuhook install`, judged by doctor
    "inventory",  # the facts, and the command
    "plugin",  # the device plugin, judged by doctor
    "configuration",  # of the device plugin, and of engines judged by doctor
    "attach", "detach", "repair",  # what is done, and the command
}  # fmt: skip
NO_FUNCTION = {
    "asked", "found", "given", "held", "kept", "known", "made", "of", "said", "seen", "taken",
    "told", "wanted",
}  # fmt: skip
NO_MODULE = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
# Words that look like participles and are nouns of the field.
NOUNS = {"blinding", "mofed"}


def classes_and_functions(path: Path) -> tuple[list[str], list[str]]:
    """Return the public classes and the public functions at the top of a module."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    kinds = (ast.ClassDef, ast.FunctionDef)
    classes, functions = (
        [node.name for node in body if isinstance(node, kind) and not node.name.startswith("_")]
        for kind in kinds
    )
    return classes, functions


def repeated(names: list[str]) -> set[str]:
    """Return the names that occur more than once."""
    return {name for name, count in collections.Counter(names).items() if count > 1}


def test_a_class_name_occurs_once() -> None:
    assert repeated([name for path in PATHS for name in classes_and_functions(path)[0]]) == set()


def test_a_module_name_occurs_once() -> None:
    assert repeated([path.stem for path in PATHS]) == SHARED


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_functions_say_what_they_return(path: Path) -> None:
    """A public function is not called `of`, `asked` or `found`: its name says what it returns."""
    assert NO_FUNCTION.intersection(classes_and_functions(path)[1]) == set()


def test_modules_are_nouns() -> None:
    """No module is a participle alone, or says that it is for everything."""
    alone = [path.stem for path in PATHS if "_" not in path.stem]
    participles = {name for name in alone if name.endswith(("ing", "ed"))} - NOUNS
    assert participles == set()
    assert NO_MODULE.intersection(path.stem for path in PATHS) == set()
