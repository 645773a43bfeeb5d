# SPDX-License-Identifier: Apache-2.0
"""The command line, run in a child of this process, which has already imported its modules."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.record import surface

USED = Path("/mnt/used")  # the modules that commands have imported


def run(
    words: list[str], env: dict[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """Run `gpuhook WORDS`."""
    input_file, out, err = files = [
        Path(f"/mnt/tmp/record-{name}") for name in ("in", "out", "err")
    ]
    input_file.write_text(stdin, encoding="utf-8")
    child = os.fork()
    if child == 0:
        _become(words, env, files)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done = subprocess.CompletedProcess(words, status, out.read_bytes(), err.read_bytes())
    for path in files:
        path.unlink()
    return done


def _become(words: list[str], env: dict[str, str], files: list[Path]) -> None:
    """Execute the command; does not return."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for fd, path in enumerate(files):
        os.dup2(os.open(path, flags if fd else os.O_RDONLY, 0o600), fd)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["gpuhook", *words]
    status = 1
    try:
        surface.command().main(prog_name="gpuhook")
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        with USED.open("a", encoding="utf-8") as used:
            used.write(" ".join(surface.loaded()) + "\n")
        os._exit(status)
