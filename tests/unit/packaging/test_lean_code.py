# SPDX-License-Identifier: Apache-2.0
"""The modules of the bundles do what their sources do, with fewer imports."""

from __future__ import annotations

import ast
import errno
import importlib.util
import stat
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]


def _bundle() -> ModuleType:
    found = importlib.util.spec_from_file_location("bundle_of_a_test", ROOT / "packaging/bundle.py")
    assert found is not None
    assert found.loader is not None
    made = importlib.util.module_from_spec(found)
    found.loader.exec_module(made)
    return made


BUNDLE = _bundle()


def lean(source: str) -> str:
    tree = ast.parse(source)
    return ast.unparse(ast.fix_missing_locations(BUNDLE.Lean(tree).visit(tree)))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import errno\nx = errno.ENOENT", f"pass\nx = {errno.ENOENT}"),
        ("import errno\nx = errno.errorcode", "import errno\nx = errno.errorcode"),
        ("import errno, os\nx = errno.EIO", f"import gpuhook_os as os\nx = {errno.EIO}"),
        ("import stat\nx = stat.S_IWOTH", f"pass\nx = {stat.S_IWOTH}"),
        (
            "import stat\nx = stat.S_ISREG(stat.S_IFREG)",
            f"pass\nx = {stat.S_IFREG} & {0o170000} == {stat.S_IFREG}",
        ),
        # Constants of os differ between machines, and the names of variables are no modules.
        ("import os\nx = os.O_PATH", "import gpuhook_os as os\nx = os.O_PATH"),
        ("def f(stat):\n    return stat.ST_MODE", "def f(stat):\n    return stat.ST_MODE"),
        ("errno = g()\nx = errno.EIO", "errno = g()\nx = errno.EIO"),
        ("from a import stat\nx = stat.ST_MODE", "from a import stat\nx = stat.ST_MODE"),
        ("def errno():\n    return errno.EIO", "def errno():\n    return errno.EIO"),
        ("import errno as e\nx = e.EIO", "import errno as e\nx = e.EIO"),
        ("import stat as s\nx = s.S_ISREG(1)", "import stat as s\nx = s.S_ISREG(1)"),
        ("import stat\nx = stat.filemode(1)", "import stat\nx = stat.filemode(1)"),
        ("import errno\nx = errno.NOT_ONE", "import errno\nx = errno.NOT_ONE"),
    ],
)
def test_constants_become_numbers(source: str, expected: str) -> None:
    assert lean(source) == expected


@pytest.mark.parametrize(
    ("source", "expected", "loaded"),
    [
        ("from a import b, c as d", "b = _modules['a'].b\nd = _modules['a'].c", {"a", "a.b"}),
        ("from a.b import c", "from a.b import c", set()),  # not loaded before it
        ("def f():\n    from a import b", "def f():\n    from a import b", set()),
        ("from __future__ import annotations", "pass", set()),
    ],
)
def test_loaded_modules_are_not_imported(source: str, expected: str, loaded: set[str]) -> None:
    known = frozenset({"a", "a.b"} if "a.b" not in source else {"a"})
    tree = ast.parse(source)
    made = BUNDLE.Lean(tree, known)
    assert ast.unparse(ast.fix_missing_locations(made.visit(tree))) == expected
    assert made.loaded == loaded


@pytest.mark.parametrize("name", BUNDLE.FUNCTIONS)
def test_expressions_are_the_functions_of_stat(name: str) -> None:
    expression = lean(f"import stat\nfound = [stat.{name}(mode + 1) for mode in modes]")
    assert "stat" not in expression
    modes = [kind << 12 | bits for kind in range(16) for bits in (0, 0o644, 0o4755, 0o7777)]
    space: dict[str, object] = {"modes": modes}
    exec(expression, space)
    assert space["found"] == [getattr(stat, name)(mode + 1) for mode in modes]


def test_bundles_need_no_module_stat() -> None:
    used = set()
    for path in (ROOT / "gpuhook").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used |= {node.attr} if node.value.id == "stat" else set()
    functions = {name for name in used if callable(getattr(stat, name, None))}
    assert functions <= BUNDLE.FUNCTIONS.keys()


def test_errors_without_a_fault_load_no_kinds() -> None:
    """A kind is an attribute of the package all the same."""
    from gpuhook import errors
    from gpuhook.errors import kinds

    assert errors.UsageError is kinds.UsageError
    assert {name for name in errors.__all__ if name.endswith("Error")} == {
        *(name for name in vars(kinds) if name.endswith("Error"))
    }
    with pytest.raises(AttributeError):
        _ = errors.NoError
    assert "gpuhook.errors.kinds" in sys.modules
