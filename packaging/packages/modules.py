# SPDX-License-Identifier: Apache-2.0
"""The modules of each package: those that the wrapper and the hook can import, and the rest.

Imports in functions are included, those for type checkers are not.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

# The processes that the kubelet calls, which commands import by name.
PROCESSES = ("gpuhook.device_plugin.plugin_process", "gpuhook.dra.driver_process")


def module_files(checkout: Path) -> dict[str, Path]:
    """Return the file of each module of the package `gpuhook`, by its dotted name."""
    return {
        module_name(path.relative_to(checkout)): path
        for path in sorted((checkout / "gpuhook").rglob("*.py"))
    }


def module_name(path: Path) -> str:
    """Return the dotted name of the module in a file, its path relative to the import root."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def shared_out(checkout: Path, hot: list[str]) -> dict[str, set[str]]:
    """Return the modules of each package: every module is in one of them.

    `hot` are the entries of the wrapper and the hook. What only the processes that the kubelet
    calls import is in the package of the device plugin; the command line has the rest.
    """
    files = module_files(checkout)
    runtime = closure(files, hot)
    command = closure(files, [name for name in files if _is_no_plugin(name)])
    plugin = closure(files, list(PROCESSES)) - runtime - command
    return {
        "gpuhook-runtime": runtime,
        "gpuhook-device-plugin": plugin,
        "gpuhook": set(files) - runtime - plugin,
    }


def _is_no_plugin(name: str) -> bool:
    return not name.startswith(("gpuhook.device_plugin.", "gpuhook.dra."))


def closure(files: dict[str, Path], entries: list[str]) -> set[str]:
    """Return the modules that `entries` may import, one by another, themselves among them."""
    reached: set[str] = set()
    waiting = list(entries)
    while waiting:
        name = waiting.pop()
        if name in reached or name not in files:
            continue
        reached.add(name)
        parts = name.split(".")
        waiting += [".".join(parts[:count]) for count in range(1, len(parts))]
        waiting += _imported_by(files[name])
    return reached


@cache
def _imported_by(path: Path) -> tuple[str, ...]:
    return tuple(_imported(ast.parse(path.read_bytes())))


def _imported(node: ast.AST) -> list[str]:
    """Return the names that import statements below a node may mean, modules or not."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        if node.test.id == "TYPE_CHECKING":
            return [name for child in node.orelse for name in _imported(child)]
    elif isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        return [module, *(f"{module}.{alias.name}" for alias in node.names)]
    parts = ast.iter_child_nodes(node)  # no import statement is within an expression
    return [name for part in parts if not isinstance(part, ast.expr) for name in _imported(part)]
