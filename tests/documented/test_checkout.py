# SPDX-License-Identifier: Apache-2.0
"""The lines `make TARGET`: make knows what each target runs, and a test runs the same."""

from __future__ import annotations

import subprocess

import pytest

from tests.documented.claims import lines_of_scenario
from tests.documented.command_lines import ROOT, CommandLine

LINES = [line for lines in lines_of_scenario("checkout").values() for line in lines]
# target -> a word of its recipe, and a file of the tests that has it.
RUN_BY = {
    "deb": ("packages", "tests/contract/package_builds.py"),
    "rpm": ("packages", "tests/contract/package_builds.py"),
    "tarball": ("tarball", "tests/contract/test_tarball.py"),
    "standalone": ("packages", "tests/contract/package_builds.py"),
    "wheel": ("wheel", "tests/contract/test_wheel.py"),
    "install": ("packaging/install.py", "tests/unit/packaging/test_install.py"),
    "demo": ("tests.demo", "tests/contract/test_demo.py"),
    "test": ("make", ".ci/run"),
}


@pytest.mark.parametrize("line", LINES, ids=str)
def test_make(line: CommandLine) -> None:
    make, *words = line.words.split()
    done = subprocess.run(
        [make, "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    for target in [word for word in words if "=" not in word]:
        word, file = RUN_BY[target]
        assert word == "make" or word in done.stdout
        assert word in (ROOT / file).read_text(encoding="utf-8"), (word, file)
