# SPDX-License-Identifier: Apache-2.0
"""Which modules a container's start imports, by their folders, and what they load.

HOT: the wrapper imports it when it gives a container its GPUs. WARM: hooks do; ctypes is allowed.
"""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).parents[2]
PACKAGE = CHECKOUT / "gpuhook"
HOT_FOLDERS = ("apply/rootfs", "apply/spec", "entry", "loader", "request")
WARM_FOLDERS = ("apply/live", "entry/hooks", "kernel")

HOT_MODULES = frozenset(
    {
        "__future__", "_abc", "_collections_abc", "_json", "_signal", "_stat", "_struct", "abc",
        "binascii", "errno", "genericpath", "marshal", "os", "os.path", "posixpath",
        "stat", "struct",
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
    """Return "HOT" or "WARM" for each module of the package whose folder is one or the other."""
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    marks = {name_of(path): mark_of(path.relative_to(PACKAGE)) for path in paths}
    return {name: mark for name, mark in marks.items() if mark}


def mark_of(path: Path) -> str:
    """Return the mark of a file of the package by its path below the package, "" without one."""
    folder = path.parent.as_posix()
    below = f"{folder}/"
    if "warm" in path.parts or below.startswith(tuple(f"{one}/" for one in WARM_FOLDERS)):
        return "WARM"
    if "hot" in path.parts or below.startswith(tuple(f"{one}/" for one in HOT_FOLDERS)):
        return "HOT"
    return "HOT" if folder == "errors" else ""


def name_of(path: Path) -> str:
    """Return the dotted name of the module at `path`."""
    parts = list(path.relative_to(CHECKOUT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def packages_of(module: str) -> list[str]:
    """Return the packages that a module is in, the outermost first."""
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


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
    packages = {package for name in marks for package in packages_of(name)}
    return loaded(interpreter, module) - allowed - own - packages
