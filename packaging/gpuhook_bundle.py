# SPDX-License-Identifier: Apache-2.0
"""Loads gpuhook's hot path out of files of byte code that packaging/bundle.py made at install time.

Forty imports through the file system cost 5 ms; out of one file, in an order that is known, they
cost 1.5. A file starts with the magic number of the interpreter that made it: another one (after
an upgrade of Python) imports the modules from their own files instead.
"""

import posix
import sys
from _frozen_importlib_external import MAGIC_NUMBER
from marshal import loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    import types

LIBRARY = __file__.rpartition("/")[0]


def load(entry: str) -> None:
    """Put the module `entry` and what it imports of gpuhook into sys.modules.

    Those that are there already stay. The modules come in the order in which they finish importing
    each other, so that every import statement in them finds what it names. `children` of a package
    are those of its modules that come before it, as it imports them; None if it is no package.
    """
    if entry in sys.modules:
        return
    try:
        fd = posix.open(f"{LIBRARY}/{entry}.bundle", posix.O_RDONLY | posix.O_CLOEXEC)
    except OSError:
        return
    data = posix.read(fd, posix.fstat(fd).st_size)
    posix.close(fd)
    if data[:4] != MAGIC_NUMBER:
        return
    module_type: type[types.ModuleType] = type(sys)
    modules = sys.modules
    for name, children, code in loads(memoryview(data)[4:]):  # noqa: S302 # our own file
        if name in modules:
            continue  # another bundle has loaded it: each module exists once
        module = modules[name] = module_type(name)
        parent, _, child = name.rpartition(".")
        module.__package__ = parent if children is None else name
        if children is not None:
            module.__path__ = [LIBRARY + "/" + name.replace(".", "/")]
            for own in children:
                setattr(module, own, modules[f"{name}.{own}"])
        exec(code, module.__dict__)  # noqa: S102 # what an import does
        if parent in modules:
            setattr(modules[parent], child, module)
