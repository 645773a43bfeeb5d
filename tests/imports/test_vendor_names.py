# SPDX-License-Identifier: Apache-2.0
"""Modules above vendors/ that import those of one vendor: none of AMD's, ever fewer of NVIDIA's.

vendors/interfaces/ has what they use instead. nvidia_imports.txt lists the modules that are left:
who frees one of them removes its line.
"""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from tests.imports.marks import PACKAGE, name_of

LISTED = Path(__file__).with_name("nvidia_imports.txt")
MOST = 30  # lines of that file; a change may only lower it


@functools.cache
def importers(vendor: str) -> frozenset[str]:
    """Return the modules above vendors/ that import a module of a vendor, also late."""
    prefix = f"gpuhook.vendors.{vendor}"
    paths = [
        path for path in PACKAGE.rglob("*.py") if path.relative_to(PACKAGE).parts[0] != "vendors"
    ]
    return frozenset(
        name_of(path) for path in paths if any(_is_in(prefix, one) for one in _imported(path))
    )


def _is_in(package: str, module: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


def _imported(path: Path) -> set[str]:
    """Return the modules that a file imports, and the names of modules in its strings."""
    found = set()
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "vendors" in text else ():
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def test_no_feature_imports_amd() -> None:
    assert importers("amd") == frozenset()


def test_fewer_and_fewer_features_import_nvidia() -> None:
    """The list has exactly these modules, and does not grow."""
    listed = LISTED.read_text(encoding="utf-8").split()
    assert listed == sorted(importers("nvidia"))
    assert len(listed) <= MOST


def test_a_late_import_is_seen(tmp_path: Path) -> None:
    """Imports of modules and of names, in functions, for type checkers, and by their names."""
    texts = (
        "def one():\n    from gpuhook.vendors import amd\n",
        "if TYPE_CHECKING:\n    from gpuhook.vendors.amd.hot.amd_words import VENDOR\n",
        "import gpuhook.vendors.amd.hot.amd_words\n",
        "load('gpuhook.vendors.amd.hot.amd_words')\n",
    )
    for text in texts:
        path = tmp_path / "one.py"
        path.write_text(text, encoding="utf-8")
        assert any(_is_in("gpuhook.vendors.amd", one) for one in _imported(path)), text
    assert not _is_in("gpuhook.vendors.amd", "gpuhook.vendors.amd_like")
