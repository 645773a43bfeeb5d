# SPDX-License-Identifier: Apache-2.0
"""A command that the tests fork off a started process (warm.py) does what its launcher does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.contract.live import Live, sleeping, started
from tests.contract.runtimes import PAIRS, Result, run_command
from tests.contract.warm import warm

# Starts as the launcher, and writes the names of the modules at its end.
PROGRAM = """
import atexit, sys
_, library, used, *words = sys.argv
sys.argv = ["gpuhook", *words]
sys.path[:0] = [library]
names = lambda: " ".join(one for one in sys.modules if one.startswith("gpuhook."))
atexit.register(lambda: open(used, "w").write(names()))
from gpuhook.cli import main
main()
"""


def launched(live: Live, verb: str, *words: str) -> Result:
    """Return what a call by the launcher gives."""
    return run_command(live.command(verb, *words), live.env)


@pytest.mark.every_case
@pytest.mark.parametrize(("engine", "cgroup"), PAIRS)
def test_launcher_has_the_same_effect(
    engine: str, cgroup: str, node8: Installation, tmp_path: Path
) -> None:
    """Each of the two undoes what the other has done, and both print the same."""
    with started(sleeping(tmp_path), node8, engine, cgroup) as live:
        before = live.view(), live.nodes(), live.mounts()
        for attach, detach in ((launched, Live.gpuhook), (Live.gpuhook, launched)):
            added = attach(live, "attach", "--device", "2", "-o", "json")
            assert added.rc == 0, added
            assert node8.device(2) in live.view().gpus()
            for words in (["repair"], ["inspect", "-o", "json"], ["attach", "--device", "17"]):
                assert launched(live, *words) == live.gpuhook(*words)
            removed = detach(live, "detach", "--device", "2")
            assert removed.rc == 0, removed
            assert (live.view(), live.nodes(), live.mounts()) == before


@pytest.mark.every_case
@pytest.mark.parametrize("command", ["attach", "doctor", "limits", "ps", "refresh"])
def test_forked_command_has_the_modules_of_its_start(
    command: str, node8: Installation, tmp_path: Path
) -> None:
    """None that the command would import later: in a container's mounts, that could fail."""
    forked, own = tmp_path / "forked", tmp_path / "own"
    process = warm(node8.bindir / "gpuhook", command)
    assert process is not None
    words = [command, "--help"]
    text = process.call(words, os.environ, used=str(forked)).stdout
    library = str(node8.bindir.parent / "lib/gpuhook")
    start = [sys.executable, "-I", "-c", PROGRAM, library, str(own), *words]
    assert subprocess.run(start, check=True, capture_output=True, text=True).stdout == text
    assert set(forked.read_text("utf-8").split()) == set(own.read_text("utf-8").split())
