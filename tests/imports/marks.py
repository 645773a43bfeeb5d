# SPDX-License-Identifier: Apache-2.0
"""Which modules say of themselves that a container's start imports them, and what they load.

A module's docstring has a paragraph that begins with HOT (the wrapper imports it) or WARM (hooks
do; ctypes is allowed).
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "gpuhook"
MARK = re.compile(r"^(HOT|WARM)\b", re.MULTILINE)

HOT_MODULES = frozenset(
    {
        "__future__", "_abc", "_collections_abc", "_json", "_signal", "_stat", "_struct", "abc",
        "binascii", "errno", "genericpath", "os", "os.path", "posixpath", "stat", "struct",
    }
)  # fmt: skip
WARM_MODULES = HOT_MODULES | {"_ctypes", "ctypes", "ctypes._endian", "fcntl", "types"}

LOADED = """
import sys
before = set(sys.modules)
sys.path.insert(0, sys.argv[1])
__import__(sys.argv[2])
print("\\n".join(sorted(set(sys.modules) - before)))
"""


@functools.cache
def marked() -> dict[str, str]:
    """Return each marked module of the package with its mark."""
    marks = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found = MARK.search(docstring)
        if found:
            marks[name_of(path)] = found[1]
    return marks


def name_of(path: Path) -> str:
    """Return the dotted name of the module at `path`."""
    parts = list(path.relative_to(CHECKOUT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def path_of(module: str) -> Path:
    """Return the file of a module of the package."""
    path = CHECKOUT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def loaded(interpreter: str, module: str) -> set[str]:
    """Return what `import module` adds to sys.modules of an isolated interpreter without site."""
    done = subprocess.run(
        [interpreter, "-ISB", "-c", LOADED, str(CHECKOUT), module],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def excess(interpreter: str, module: str, mark: str) -> set[str]:
    """Return the modules that `module` loads and, by its mark, may not."""
    allowed = HOT_MODULES if mark == "HOT" else WARM_MODULES
    marks = marked()
    may = {"HOT"} if mark == "HOT" else {"HOT", "WARM"}
    own = {name for name, held in marks.items() if held in may}
    packages = {name.rpartition(".")[0] for name in marks} | {"gpuhook", "gpuhook.vendors"}
    return loaded(interpreter, module) - allowed - own - packages
