# SPDX-License-Identifier: Apache-2.0
"""Install gpuhook below a prefix: the package, its byte code, and the three launchers.

    python3 packaging/install.py --prefix /usr/local [--destdir DIR] [--python /usr/bin/python3]
                                 [--cli-python PATH]

`--python` runs the wrapper and the hook and needs nothing but its standard library (3.9 or newer);
`--cli-python` runs `gpuhook` and needs the package's dependencies.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(HERE), "gpuhook")
LAUNCHERS = {
    "gpuhook-runtime": "gpuhook-runtime.sh",
    "gpuhook-hook": "gpuhook-hook.py",
    "gpuhook": "gpuhook.sh",
}


def install(prefix: str, destdir: str, python: str, cli_python: str) -> list[str]:
    """Install below `destdir` for use at `prefix`; returns the paths of the launchers."""
    library = os.path.join(prefix, "lib/gpuhook")
    target = destdir + library
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(
        PACKAGE,
        os.path.join(target, "gpuhook"),
        ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
    )
    subprocess.run(
        [python, "-IS", "-X", "no_debug_ranges", os.path.join(HERE, "bundle.py"), target, library],
        check=True,
    )
    shutil.copy(os.path.join(HERE, "gpuhook_bundle.py"), target)
    # Byte code that is never compared with its source: one stat less per module and start.
    subprocess.run(
        [python, "-IS", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", target],
        check=True,
    )
    bindir = os.path.join(prefix, "bin")
    os.makedirs(destdir + bindir, exist_ok=True)
    written = []
    for name, template in LAUNCHERS.items():
        path = os.path.join(destdir + bindir, name)
        with open(os.path.join(HERE, template), encoding="utf-8") as file:
            text = file.read()
        for word, value in (("PYTHON", python), ("LIB", library), ("CLI", cli_python)):
            text = text.replace(f"@{word}@", value)
        _write_program(path, text)
        written.append(path)
    return written


def _write_program(path: str, text: str) -> None:
    """Replace the program at `path`, which may be running."""
    temporary = path + ".new"
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(temporary, 0o755)  # noqa: S103 # a program for everybody
    os.rename(temporary, path)


def main() -> None:
    """Parse the command line and install."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--prefix", default="/usr/local", help="where the files are used")
    parser.add_argument("--destdir", default="", help="a directory put in front of every path")
    parser.add_argument("--python", default="/usr/bin/python3", help="of the wrapper and the hook")
    parser.add_argument("--cli-python", default=sys.executable, help="of the gpuhook command")
    options = parser.parse_args()
    for word in ("prefix", "python", "cli_python"):
        if not os.path.isabs(getattr(options, word)):
            parser.error(f"--{word.replace('_', '-')} must be an absolute path")
    destdir = os.path.abspath(options.destdir) if options.destdir else ""
    for path in install(options.prefix, destdir, options.python, options.cli_python):
        print(path)


if __name__ == "__main__":
    main()
