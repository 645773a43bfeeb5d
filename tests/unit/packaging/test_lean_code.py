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
            f"import _stat as stat\nx = stat.S_ISREG({stat.S_IFREG})",
        ),
        # Constants of os differ between machines, and the names of variables are no modules.
        ("import os\nx = os.O_PATH", "import gpuhook_os as os\nx = os.O_PATH"),
        ("def f(stat):\n    return stat.ST_MODE", "def f(stat):\n    return stat.ST_MODE"),
        ("errno = g()\nx = errno.EIO", "errno = g()\nx = errno.EIO"),
        ("from a import stat\nx = stat.ST_MODE", "from a import stat\nx = stat.ST_MODE"),
        ("def errno():\n    return errno.EIO", "def errno():\n    return errno.EIO"),
        ("import errno as e\nx = e.EIO", "import errno as e\nx = e.EIO"),
        ("import stat as s\nx = s.ST_MODE", "import _stat as s\nx = s.ST_MODE"),
        ("import errno\nx = errno.NOT_ONE", "import errno\nx = errno.NOT_ONE"),
    ],
)
def test_constants_become_numbers(source: str, expected: str) -> None:
    assert lean(source) == expected


def test_c_has_the_functions_of_stat() -> None:
    """The bundles import _stat in place of stat."""
    import _stat

    for name in vars(_stat):
        if not name.startswith("_"):
            assert getattr(_stat, name) == getattr(stat, name), name
    used = set()
    for path in (ROOT / "gpuhook").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used |= {node.attr} if node.value.id == "stat" else set()
    assert {name for name in used if name.startswith("S_")} <= set(vars(_stat))


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
