# SPDX-License-Identifier: Apache-2.0
"""Write the modules that a container start imports into files of byte code.

    python -IS bundle.py TARGET LIBRARY PYTHON

writes TARGET/<entry>.bundle for each entry of the hot path, out of the package TARGET/gpuhook, to
be used at LIBRARY by gpuhook_bundle.py, which says why and how.
"""

from __future__ import annotations

import ast
import errno
import importlib.util
import marshal
import os
import stat
import subprocess
import sys
from functools import cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types

# Entry -> the entry that is loaded before it: each call of the launcher, then a create with GPUs.
ENTRIES = {
    "gpuhook.entry.runtime": None,
    "gpuhook.entry.create": "gpuhook.entry.runtime",
    "gpuhook.memory_limits.hot.create_limits": "gpuhook.entry.create",
    "gpuhook.apply.rootfs.loader_files": "gpuhook.entry.create",
    "gpuhook.request.extra_requests": "gpuhook.entry.create",
    "gpuhook.vendors.nvidia.hot.extras.extra_devices": "gpuhook.request.extra_requests",
    "gpuhook.vendors.nvidia.hot.requirement_check": "gpuhook.entry.create",
    "gpuhook.vendors.nvidia.hot.device_names.node_devices": "gpuhook.entry.create",
    "gpuhook.vendors.amd.hot.amd_plan_node": "gpuhook.entry.create",
    "gpuhook.entry.hooks.hook": None,
    "gpuhook.entry.hooks.apply_hook": "gpuhook.entry.hooks.hook",
    "gpuhook.entry.hooks.limit_hook": "gpuhook.entry.hooks.hook",
    "gpuhook.entry.hooks.prestart_hook": "gpuhook.entry.hooks.hook",
    "gpuhook.vendors.nvidia.warm.toolkit_loader": "gpuhook.entry.hooks.apply_hook",
    "gpuhook.entry.hooks.toolkit_hook": "gpuhook.entry.hooks.apply_hook",
}

# Prints the modules of gpuhook in the order in which their imports end.
ORDER = """
import sys
import importlib.machinery as m
sys.path[:0] = [sys.argv[1]]
done = []
run = m.SourceFileLoader.exec_module
def exec_module(self, module):
    run(self, module)
    done.append(module.__name__)
m.SourceFileLoader.exec_module = exec_module
__import__(sys.argv[2])
print("\\n".join(name for name in done if name.partition(".")[0] == "gpuhook"))
"""


# Their constants are numbers in the bundles: the same on every machine that packages are made for.
CONSTANTS = {"errno": errno, "stat": stat}
KINDS = ("BLK", "CHR", "DIR", "LNK", "REG", "SOCK")
# Functions of stat are expressions in the bundles: (bits of the mode, the value they must have).
FUNCTIONS: dict[str, tuple[int, int | None]] = {
    **{f"S_IS{kind}": (0o170000, getattr(stat, f"S_IF{kind}")) for kind in KINDS},
    "S_ISFIFO": (0o170000, stat.S_IFIFO),
    "S_IFMT": (0o170000, None),
    "S_IMODE": (0o7777, None),
}


class StatCalls(ast.NodeTransformer):
    """Replaces calls of the functions of stat: to import a module of C takes 0.03 ms."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a call."""
        self.generic_visit(node)
        function = node.func
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return node
        if function.value.id != "stat" or function.attr not in FUNCTIONS:
            return node
        bits, value = FUNCTIONS[function.attr]
        made: ast.expr = ast.BinOp(node.args[0], ast.BitAnd(), ast.Constant(bits))
        if value is not None:
            made = ast.Compare(made, [ast.Eq()], [ast.Constant(value)])
        return ast.copy_location(made, node)


class Lean(ast.NodeTransformer):
    """Removes annotations and type-checking blocks, and replaces modules and constants."""

    def __init__(self, tree: ast.Module, known: frozenset[str] = frozenset()) -> None:
        """Examine which modules `tree` needs for more than their constants.

        `known` are modules that are loaded before it; `loaded` becomes those that it uses.
        """
        self._known = known
        self.loaded: set[str] = set()
        own = {name for node in ast.walk(tree) for name in _bound(node)}
        if "stat" not in own:
            StatCalls().visit(tree)
        nodes = list(ast.walk(tree))
        self._constants = {name: CONSTANTS[name] for name in CONSTANTS.keys() - own}
        of_constants = [
            node.value
            for node in nodes
            if isinstance(node, ast.Attribute) and self._number(node) is not None
        ]
        read = [node for node in nodes if isinstance(node, ast.Name) and node not in of_constants]
        self._used = {*own, *(node.id for node in read)}

    def _number(self, node: ast.Attribute) -> int | None:
        """Return the value of `module.NAME`, None for anything but such a number."""
        module = self._constants.get(node.value.id) if isinstance(node.value, ast.Name) else None
        value = getattr(module, node.attr, None) if node.attr.isupper() else None
        return value if type(value) is int else None

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace a constant by its value."""
        number = self._number(node)
        if number is not None:
            return ast.copy_location(ast.Constant(number), node)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Remove the annotations of a function."""
        self.generic_visit(node)
        node.returns = None
        arguments = node.args
        for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
            argument.annotation = None
        for variadic in (arguments.vararg, arguments.kwarg):
            if variadic is not None:
                variadic.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Turn an annotated assignment into a plain one."""
        self.generic_visit(node)
        plain: ast.AST = ast.Pass()
        if node.value is not None:
            plain = ast.Assign(targets=[node.target], value=node.value)
        return ast.fix_missing_locations(ast.copy_location(plain, node))

    def visit_If(self, node: ast.If) -> ast.AST:
        """Remove `if TYPE_CHECKING:` blocks."""
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse:
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Import(self, node: ast.Import) -> ast.AST:
        """Replace `import os` by gpuhook_os; remove modules that are replaced by numbers."""
        unneeded = self._constants.keys() - self._used
        node.names = [one for one in node.names if one.asname or one.name not in unneeded]
        for alias in node.names:
            if alias.name == "os":
                alias.name, alias.asname = "gpuhook_os", alias.asname or "os"
        return node if node.names else ast.copy_location(ast.Pass(), node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST]:
        """Replace the import of loaded modules: the import system takes 2,000 instructions each.

        `from __future__ import annotations` goes: no annotations remain.
        """
        if node.module == "__future__":
            return ast.copy_location(ast.Pass(), node)
        if node.module == "os.path":
            node.module = "gpuhook_os"
        if node.module not in self._known or node.col_offset:
            return node  # that in a function may be of a module that is not loaded yet
        modules = {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
        self.loaded |= modules & self._known
        return [ast.copy_location(_taken(node.module, one), node) for one in node.names]


def _taken(module: str, name: ast.alias) -> ast.stmt:
    """Return the statement that takes a name of a loaded module: gpuhook_bundle has _modules."""
    loaded = ast.Subscript(ast.Name("_modules", ast.Load()), ast.Constant(module), ast.Load())
    value = ast.Attribute(loaded, name.name, ast.Load())
    return ast.Assign([ast.Name(name.asname or name.name, ast.Store())], value)


def _bound(node: ast.AST) -> list[str]:
    """Return the names that a node gives a value to, other than `import NAME`."""
    if isinstance(node, ast.arg):
        return [node.arg]
    if isinstance(node, ast.Name):
        return [] if isinstance(node.ctx, ast.Load) else [node.id]
    if isinstance(node, ast.ImportFrom):
        return [alias.asname or alias.name for alias in node.names]
    if isinstance(node, ast.Import):
        return [alias.asname for alias in node.names if alias.asname]
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler)):
        return [node.name] if node.name else []
    return []


@cache
def order(python: str, target: str, entry: str) -> list[str]:
    """Return the modules that `entry` imports of the package in `target`, itself last."""
    command = [python, "-ISB", "-c", ORDER, target, entry]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().split()


def code(
    target: str, library: str, name: str, before: list[str], loaded: set[str]
) -> tuple[str, tuple[str, ...] | None, types.CodeType]:
    """Return the module's name, its modules among those `before`, and its code.

    The modules are None if it is no package. Those of the modules before it that the code takes to
    be loaded are added to `loaded`.
    """
    path = os.path.join(target, *name.split("."))
    children = None
    if os.path.isdir(path):
        path = os.path.join(path, "__init__")
        children = tuple(one[len(name) + 1 :] for one in before if one.rpartition(".")[0] == name)
    path += ".py"
    with open(path, "rb") as file:
        source = ast.parse(file.read())
    lean = Lean(source, frozenset(before))
    tree = ast.fix_missing_locations(lean.visit(source))
    loaded |= lean.loaded
    used = library + path[len(target) :]
    return name, children, compile(tree, used, "exec", dont_inherit=True, optimize=2)


def write(target: str, library: str, python: str) -> None:
    """Write the bundles of the package in `target`, to be used at `library` by `python`.

    `python` is an argument, as sys.executable differs if a launcher was called.
    """
    for entry, before in ENTRIES.items():
        earlier = order(python, target, before) if before else []
        names = [name for name in order(python, target, entry) if name not in earlier]
        loaded: set[str] = set()
        modules = [
            code(target, library, name, earlier + names[:at], loaded)
            for at, name in enumerate(names)
        ]
        if before is None:
            modules.insert(0, code(target, library, "gpuhook_os", [], set()))
        data = marshal.dumps((sorted(loaded.intersection(earlier)), modules))
        path = os.path.join(target, entry + ".bundle")
        with open(path + ".new", "wb") as file:
            file.write(importlib.util.MAGIC_NUMBER + data)
        os.rename(path + ".new", path)  # containers may be starting


if __name__ == "__main__":
    write(*sys.argv[1:4])
