# SPDX-License-Identifier: Apache-2.0
"""Compile the byte code of an installed library, for the Python that runs this.

    /usr/bin/python3 -IS byte_code.py

Packages call it when they are installed, and once more when there is another Python. What was made
for another one goes. Without byte code everything works, slower.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import py_compile
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def main() -> int:
    """Run the program; return the exit status."""
    remove_ended()
    interpreter = sys.executable
    failed = [path for path in sources() if not compiled(path)]
    script = os.path.join(HERE, "bundle.py")
    command = [interpreter, "-IS", "-X", "no_debug_ranges", script, HERE, HERE, interpreter]
    bundled = subprocess.run(command, check=False).returncode == 0
    remove_foreign()
    return 0 if bundled and not failed else 1


def remove_ended() -> None:
    """Remove the byte code that programs of removed releases wrote when they ended."""
    releases = os.path.dirname(HERE)
    if os.path.basename(releases) != "gpuhook":
        return  # not installed by a package: the neighbours are other programs'
    for name in os.listdir(releases):
        directory = os.path.join(releases, name)
        if os.path.isdir(directory) and not os.path.islink(directory) and not sources(directory):
            shutil.rmtree(directory, ignore_errors=True)


def sources(place: str = HERE) -> list[str]:
    """Return the files of all modules."""
    found = []
    for directory, _, names in os.walk(place):
        found += [os.path.join(directory, name) for name in names if name.endswith(".py")]
    return found


def compiled(path: str) -> bool:
    """Compile the byte code of a module unless it exists; return whether it exists then.

    It is never compared with its source: one stat fewer per module and start. Source: PEP 552.
    """
    made = importlib.util.cache_from_source(path)
    try:
        with open(path, "rb") as file:
            head = b"\x01\0\0\0" + importlib.util.source_hash(file.read())
        with contextlib.suppress(OSError), open(made, "rb") as file:
            if file.read(16) == importlib.util.MAGIC_NUMBER + head:
                return True
        unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
        py_compile.compile(path, made, doraise=True, invalidation_mode=unchecked)
    except (OSError, py_compile.PyCompileError) as error:
        print(error, file=sys.stderr)
        return False
    return True


def remove_foreign() -> None:
    """Remove byte code of other Pythons, and byte code without a source."""
    own = f".{sys.implementation.cache_tag}.pyc"
    for directory, _, names in os.walk(HERE):
        if os.path.basename(directory) != "__pycache__":
            continue
        sources = os.listdir(os.path.dirname(directory))
        for name in names:
            if not name.endswith(own) or name[: -len(own)] + ".py" not in sources:
                os.unlink(os.path.join(directory, name))


if __name__ == "__main__":
    sys.exit(main())
