# SPDX-License-Identifier: Apache-2.0
"""The gpuhook command in a process that has done its start: a test saves most of the time.

    python -I warm.py LIBRARY [COMMAND]

reads one call per line, a JSON object with `words`, `env`, `cwd`, `out` and `err`, runs each in a
child process with its output in those two files, and answers with the exit status. `steps` are
shell commands for a mount namespace of the call's own.

With COMMAND, the process has imported what `gpuhook COMMAND` has imported when its work begins:
what a command imports later, each call imports, as one that the launcher starts. Without it, the
next call finds the modules that any call has imported: that prepares tests.
"""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

_LAUNCHER = re.compile(
    r"""^exec "([^"]+)" -I -c 'import sys; del sys\.argv\[0\]; """
    r"""sys\.path\[:0\] = \["([^"]+)"\]; from gpuhook\.cli import main; main\(\)' "\$0" "\$@"$""",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Warm:
    """The process that runs the commands of one installation; it ends with the test run."""

    process: subprocess.Popen[str]
    launcher: Path

    def call(
        self, words: Sequence[str], env: Mapping[str, str], steps: str = "", used: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run `gpuhook WORDS`, after the shell commands `steps` in a new mount namespace.

        The names of the modules that the call has at its end are written to the file `used`.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with TemporaryDirectory() as place:
            out, err = Path(place, "out"), Path(place, "err")
            call = {
                "words": [str(self.launcher), *words],
                "env": dict(env),
                "cwd": os.getcwd(),
                "steps": steps,
                "out": str(out),
                "err": str(err),
                "used": used or f"{place}/used",
            }
            try:
                print(json.dumps(call), file=self.process.stdin, flush=True)
                status = int(self.process.stdout.readline())
            except BaseException:  # a test's time is over: the next call must not get this answer
                self.process.kill()
                _started.cache_clear()
                raise
            texts = [path.read_text(encoding="utf-8") for path in (out, err)]
        return subprocess.CompletedProcess(words, status, *texts)


def warm(launcher: Path, command: str = "") -> Warm | None:
    """Return the process for an installed `gpuhook`, if no test has changed its launcher."""
    found = _LAUNCHER.search(launcher.read_text(encoding="utf-8"))
    return Warm(_started(found[1], found[2], command), launcher) if found else None


@cache
def _started(python: str, library: str, command: str) -> subprocess.Popen[str]:
    words = [python, "-I", __file__, library, *[command] * bool(command)]
    pipe = subprocess.PIPE
    return subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, cwd="/")


def _serve(library: str, command: str = "") -> None:
    """Answer calls until the input ends; in a child process, return after its call."""
    sys.path[:0] = [library]
    import importlib

    if command:
        import click

        from gpuhook.cli import main

        main.get_command(click.Context(main), command)
        gc.freeze()
    for line in sys.stdin:
        call = json.loads(line)
        child = os.fork()
        if child == 0:
            _become(call)
            return
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if not command:  # commands import modules late: the next call finds those of this one
            for name in Path(call["used"]).read_text("utf-8").split():
                importlib.import_module(name)
        print(status, flush=True)


def _become(call: dict[str, Any]) -> None:
    """Execute the command; it ends the process as it would end its own."""
    if call["steps"]:
        _enter_namespace(call["steps"])
    os.environ.clear()
    os.environ.update(call["env"])
    os.chdir(call["cwd"])
    flags = os.O_WRONLY | os.O_CREAT
    for fd, (path, how) in enumerate(
        ((os.devnull, os.O_RDONLY), (call["out"], flags), (call["err"], flags))
    ):
        opened = os.open(path, how, 0o600)
        os.dup2(opened, fd)
        os.close(opened)
    sys.argv = call["words"]
    try:
        from gpuhook.cli import main

        main()
    finally:
        used = [name for name in sys.modules if name.startswith("gpuhook.")]
        Path(call["used"]).write_text(" ".join(used), encoding="utf-8")


def _enter_namespace(steps: str) -> None:
    """Run shell commands in a new mount namespace, as `unshare --mount sh -c` would."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    new_namespace, recursive, private = 0x00020000, 16384, 1 << 18
    assert library.unshare(new_namespace) == 0, os.strerror(ctypes.get_errno())
    changed = library.mount(b"none", b"/", None, ctypes.c_ulong(recursive | private), None)
    assert changed == 0, os.strerror(ctypes.get_errno())
    pid = os.posix_spawnp("sh", ["sh", "-c", steps], os.environ)
    assert os.waitpid(pid, 0)[1] == 0, steps


if __name__ == "__main__":
    _serve(*sys.argv[1:])
