# SPDX-License-Identifier: Apache-2.0
"""The Go programs of the tests, compiled once, and asked through one long-lived process each."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.contract.build_cache import built

PROGRAMS = Path(__file__).parent / "programs"
LIBRARIES = "/usr/share/gocode"  # of Debian's golang-*-dev packages
VERSION = Path("/usr/lib/go/VERSION")


def go_program(name: str) -> Path:
    """Return the program of programs/NAME.go, compiled with the libraries of Debian.

    Without Go, the test is skipped; `make test-all` installs it.
    """
    if not (shutil.which("go") and VERSION.exists()):
        pytest.skip("Debian's Go is missing: install the packages GO of the Makefile")
    sources = [PROGRAMS / f"{name}.go", PROGRAMS / "frames.go"]

    def build(place: Path) -> None:
        go = {"GO111MODULE": "off", "GOPATH": LIBRARIES, "GOCACHE": str(place / "cache")}
        environment = {**os.environ, **go, "CGO_ENABLED": "0"}
        command = ["go", "build", "-o", str(place / name), *map(str, sources)]
        subprocess.run(command, check=True, env=environment)
        subprocess.run(["rm", "-rf", str(place / "cache")], check=True)

    recipe = "".join(path.read_text(encoding="utf-8") for path in (*sources, VERSION))
    return built(f"go-{name}", recipe, build) / name


class Answers:
    """A program that answers each frame on its standard input with a number of frames.

    A frame is its length in 4 bytes, and that many bytes.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input, self._output = process.stdin, process.stdout

    def to(self, document: bytes, frames: int) -> list[bytes]:
        """Return the frames that answer a document."""
        self._input.write(len(document).to_bytes(4, "big") + document)
        self._input.flush()
        return [self._frame() for _ in range(frames)]

    def _frame(self) -> bytes:
        size = self._output.read(4)
        assert len(size) == 4, "the program ended"
        return self._output.read(int.from_bytes(size, "big"))


@contextmanager
def running(name: str, *arguments: str) -> Iterator[Answers]:
    """Yield a program of programs/ that answers documents."""
    command = [str(go_program(name)), *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Answers(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=60) == 0
