# SPDX-License-Identifier: Apache-2.0
"""Load gpuhook's hot path from files of byte code that packaging/bundle.py wrote at installation.

Forty imports through the file system take 5 ms; from one file, in a known order, they take 1.5 ms.
A file starts with the magic number of its interpreter: another interpreter (after an upgrade of
Python) imports the modules from their own files instead, as one that cannot read the file does.
"""

import _imp
import posix
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types
    from typing import Any

LIBRARY = __file__.rpartition("/")[0]
# Modules of C that the bundles import, and gc.
OF_C = ("gc", "_json", "binascii")


def start(entry: str) -> None:
    """Run the main function of a module."""
    for name in OF_C:
        _load_of_c(name)
    __import__("gc").disable()
    load(entry)
    __import__(entry)
    sys.modules[entry].main()


def _load_of_c(name: str) -> None:
    """Import a module of C; the import system takes ten times longer, and does it after a failure.

    The last directory of sys.path has the modules that are not in the interpreter's program.
    """
    is_built_in = name in sys.builtin_module_names
    origin = f"{sys.path[-1]}/{name}{_imp.extension_suffixes()[0]}"
    spec: Any = type(sys.implementation)(name=name, origin=origin)  # type: ignore[call-arg]
    try:
        module = _imp.create_builtin(spec) if is_built_in else _imp.create_dynamic(spec)
    except ImportError:
        return
    (_imp.exec_builtin if is_built_in else _imp.exec_dynamic)(module)
    sys.modules[name] = module


def _content(entry: str) -> bytes:
    """Return a bundle, b"" if it cannot be read."""
    try:
        fd = posix.open(f"{LIBRARY}/{entry}.bundle", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return posix.read(fd, posix.fstat(fd).st_size)
    except OSError:
        return b""
    finally:
        posix.close(fd)


def load(entry: str) -> None:
    """Put the module `entry` and what it imports of gpuhook into sys.modules.

    Modules that are already loaded remain. The modules are in the order in which their imports end,
    so that every import statement in them finds its module. `children` of a package are its modules
    that precede it because it imports them; None for a module. `earlier` are modules of earlier
    bundles. The code takes modules from _modules in place of an import.
    """
    data = b"" if entry in sys.modules else _content(entry)
    if data[:4] != MAGIC_NUMBER:
        return
    module_type: type[types.ModuleType] = type(sys)
    modules = sys.modules
    earlier, parts = loads(memoryview(data)[4:])  # noqa: S302 # our own file
    for name in earlier:
        if name not in modules:  # an earlier bundle could not be read
            __import__(name)
    for name, children, code in parts:
        if name in modules:
            continue  # another bundle has loaded it: each module exists once
        module = modules[name] = module_type(name)
        parent, _, child = name.rpartition(".")
        module.__dict__["_modules"] = modules
        module.__package__ = parent if children is None else name
        if children is not None:
            module.__path__ = [LIBRARY + "/" + name.replace(".", "/")]
            for own in children:
                setattr(module, own, modules[f"{name}.{own}"])
        exec(code, module.__dict__)  # noqa: S102 # what an import does
        if parent in modules:
            setattr(modules[parent], child, module)
