# SPDX-License-Identifier: Apache-2.0
"""The modules of a container's start on the supported Pythons, 3.9 to 3.13."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.contract import pythons
from tests.contract.runtimes import run_command
from tests.imports.marks import excess, marked, path_of

MARKS = marked()
VERSIONS = pytest.mark.parametrize("version", pythons.RELEASES)
COMPILE_ALL = """
import sys
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        compile(file.read(), path, "exec")
"""


@VERSIONS
def test_interpreter(version: str) -> None:
    """The interpreter has its version, is isolated, and has the modules that hooks may import."""
    code = "import sys, ctypes, fcntl, _json; print('%d.%d' % sys.version_info[:2], sys.flags[7])"
    command = [str(pythons.interpreter(version)), "-IS", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [version, "1"]


@VERSIONS
def test_interpreter_in_a_shebang(version: str, tmp_path: Path) -> None:
    """The interpreter's launcher works in a #! line, and leaves no variable to its children."""
    program = tmp_path / "program"
    code = "import os\nos.execv('/usr/bin/env', ['env'])\n"
    program.write_text(f"#!{pythons.interpreter(version)} -IS\n{code}", encoding="utf-8")
    program.chmod(0o755)
    done = subprocess.run([program], env={"A": "b"}, capture_output=True, text=True, check=True)
    assert "A=b" in done.stdout.splitlines()
    assert "LD_LIBRARY_PATH" not in done.stdout


@VERSIONS
def test_modules_compile(version: str) -> None:
    """Each HOT and WARM module is valid source for the interpreter."""
    paths = [str(path_of(module)) for module in MARKS]
    command = [str(pythons.interpreter(version)), "-ISB", "-c", COMPILE_ALL, *paths]
    done = run_command(command)
    assert done.rc == 0, done.stderr


@VERSIONS
@pytest.mark.parametrize("module", MARKS)
def test_modules_import(version: str, module: str) -> None:
    """Each HOT and WARM module can be imported, and loads no module that is not allowed."""
    assert excess(str(pythons.interpreter(version)), module, MARKS[module]) == set()
