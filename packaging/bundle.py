# SPDX-License-Identifier: Apache-2.0
"""Write the modules that a container start imports into one file of byte code.

Forty imports through the file system cost 5 ms; out of one file, in an order that is known, they
cost 2. The file is made at install time by the interpreter that will run it; another interpreter
(after an upgrade of Python) finds that the magic number differs and imports the modules from
their own files.

    python -IS bundle.py TARGET LIBRARY

writes TARGET/gpuhook_bundle.py for the package TARGET/gpuhook, to be used at LIBRARY.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
import os
import subprocess
import sys

# What is loaded at once: for every call of the launcher, for a create with GPUs, for the hook.
ENTRIES = ("gpuhook.programs.runtime", "gpuhook.programs.create", "gpuhook.programs.hook")

TEMPLATE = '''\
# Made by packaging/bundle.py at install time.
"""The modules of gpuhook's hot path as byte code."""
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from marshal import loads

LIBRARY = {library!r}
MODULES = {modules}
FITS = MAGIC_NUMBER == {magic!r}


def load(entry):
    """Put the module `entry` and all that it imports of gpuhook into sys.modules.

    The modules come in the order in which they finish importing each other, so that every import
    statement in them finds what it names.
    """
    if not FITS:
        return
    module_type = type(sys)
    modules = sys.modules
    for name, is_package, code in MODULES[entry]:
        if name in modules:
            continue
        module = modules[name] = module_type(name)
        parent, _, child = name.rpartition(".")
        module.__package__ = name if is_package else parent
        if is_package:
            module.__path__ = [LIBRARY + "/" + name.replace(".", "/")]
        exec(loads(code), module.__dict__)
        if parent:
            setattr(modules[parent], child, module)
'''

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


class Lean(ast.NodeTransformer):
    """Leaves out what only readers and type checkers need: annotations and docstrings."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Drop the annotations of a function."""
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
        """Drop `if TYPE_CHECKING:` blocks."""
        self.generic_visit(node)
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" and not node.orelse:
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        """Drop `from __future__ import annotations`: there are none left."""
        return ast.copy_location(ast.Pass(), node) if node.module == "__future__" else node


def order(target: str, entry: str) -> list[str]:
    """Return the modules that `entry` imports of the package in `target`, itself last."""
    command = [sys.executable, "-IS", "-c", ORDER, target, entry]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return done.stdout.decode().split()


def code(target: str, library: str, name: str) -> tuple[bool, bytes]:
    """Return whether the module is a package, and its byte code."""
    path = os.path.join(target, *name.split("."))
    is_package = os.path.isdir(path)
    path = os.path.join(path, "__init__.py") if is_package else path + ".py"
    with open(path, "rb") as file:
        tree = Lean().visit(ast.parse(file.read()))
    used = library + path[len(target) :]
    return is_package, marshal.dumps(compile(tree, used, "exec", dont_inherit=True, optimize=2))


def write(target: str, library: str) -> str:
    """Write the bundle of the package in `target`, to be used at `library`; return its path."""
    codes: dict[str, tuple[bool, bytes]] = {}
    lists = []
    for entry in ENTRIES:
        names = order(target, entry)
        for name in names:
            if name not in codes:
                codes[name] = code(target, library, name)
        items = "".join(f"({name!r}, *CODES[{name!r}]),\n" for name in names)
        lists.append(f"{entry!r}: [\n{items}],\n")
    table = "".join(f"{name!r}: {found!r},\n" for name, found in codes.items())
    text = TEMPLATE.format(
        library=library,
        modules="{\n" + "".join(lists) + "}",
        magic=importlib.util.MAGIC_NUMBER,
    )
    text = text.replace("MODULES = {", "CODES = {\n" + table + "}\nMODULES = {", 1)
    written = os.path.join(target, "gpuhook_bundle.py")
    with open(written, "w", encoding="ascii") as file:
        file.write(text)
    return written


if __name__ == "__main__":
    write(*sys.argv[1:3])
