# SPDX-License-Identifier: Apache-2.0
"""A request on its way from the wrapper to config.json enters each module once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.contract.bundles import bundle
from tests.contract.installation import Installation, asks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.contract.roots import Roots

# Prints the chain of functions for each call into a module that is already on the call stack below
# another module. The wrapper ends with _exit().
PROFILER = """
import os, sys
again = set()
def entered(frame, event, _):
    path = frame.f_code.co_filename
    if event != "call" or "/gpuhook/" not in path or frame.f_code.co_name == "<module>":
        return
    if path.endswith("/gpuhook_bundle.py"):  # it loads modules, and calls the main function
        return
    chain, caller, left = [frame.f_code.co_name], frame.f_back, False
    while caller is not None:
        file = caller.f_code.co_filename
        if "/gpuhook/" in file:
            chain.append(file.rpartition("/gpuhook/")[2] + ":" + caller.f_code.co_name)
            if left and file == path:
                again.add(" < ".join(chain))
            left = left or file != path
        caller = caller.f_back
end = os._exit
def report(status):
    sys.setprofile(None)
    print("\\n".join(sorted(again)), file=sys.stderr)
    end(status)
import posix
posix._exit = report
sys.setprofile(entered)
"""


@pytest.mark.parametrize("value", ["0", "all"])
def test_no_module_is_entered_twice(
    value: str, node8: Installation, root_of: Roots, tmp_path: Path
) -> None:
    """A create with GPUs calls down the folders, and never back up."""
    launcher = node8.bindir / "gpuhook-runtime"
    command, _, rest = (
        launcher.read_text("utf-8").partition('found=$("')[2].partition("\" -ISXutf8 -c '")
    )
    program = PROFILER + rest.partition("'")[0]
    made = bundle(tmp_path / "bundle", root_of("debian"), ["true"], asks(value, "all"))
    words = [
        command,
        "-ISXutf8",
        "-c",
        program,
        str(launcher),
        "create",
        "--bundle",
        str(made.path),
        "id",
    ]
    done = subprocess.run(
        words, env=node8.on("runc"), capture_output=True, text=True, check=False, cwd=made.path
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert done.stdout, "the low-level runtime"
    assert "/dev/nvidia0" in made.file.read_text("utf-8")
