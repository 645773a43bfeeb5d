# SPDX-License-Identifier: Apache-2.0
"""The gpuhook command in a process that has imported its modules, to prepare tests.

    python -I warm.py LIBRARY

reads one call per line, a JSON object with `words`, `env`, `out` and `err`, runs each in a child
process with its output in those two files, and answers with the exit status. This saves the start
of Python and the imports. A call that a test checks goes through the launcher.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any


@dataclass(frozen=True)
class Warm:
    """The process that runs the commands of one installation; it ends with the test run."""

    process: subprocess.Popen[str]

    def call(self, words: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Run `gpuhook WORDS`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with TemporaryDirectory() as place:
            out, err = f"{place}/out", f"{place}/err"
            call = {"words": words, "env": env, "out": out, "err": err, "used": f"{place}/used"}
            print(json.dumps(call), file=self.process.stdin, flush=True)
            status = int(self.process.stdout.readline())
            texts = [Path(path).read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(words, status, *texts)


def warm(launcher: Path) -> Warm:
    """Return the process for the library of an installed `gpuhook`."""
    text = launcher.read_text(encoding="utf-8")
    found = re.search(r'sys\.path\[:0\] = \["([^"]+)"\]', text)
    python = re.search(r'^exec "([^"]+)"', text, re.MULTILINE)
    assert found is not None
    assert python is not None
    return _started(python[1], found[1])


@cache
def _started(python: str, library: str) -> Warm:
    command = [python, "-I", __file__, library]
    pipe = subprocess.PIPE
    return Warm(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd="/"))


def _serve(library: str) -> None:
    """Answer calls until the input ends."""
    sys.path[:0] = [library]
    import importlib

    for line in sys.stdin:
        call = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(call)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        # Commands import modules late: the next call finds those that this one imported.
        for name in Path(call["used"]).read_text("utf-8").split():
            importlib.import_module(name)
        print(status, flush=True)


def _become(call: dict[str, Any]) -> None:
    """Execute the command; does not return."""
    os.environ.clear()
    os.environ.update(call["env"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for fd, path in ((1, call["out"]), (2, call["err"])):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), fd)
    sys.argv = ["gpuhook", *call["words"]]
    status = 1
    try:
        from gpuhook.cli import main

        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        used = [name for name in sys.modules if name.startswith("gpuhook.")]
        Path(call["used"]).write_text(" ".join(used), encoding="utf-8")
        os._exit(status)


if __name__ == "__main__":
    _serve(sys.argv[1])
