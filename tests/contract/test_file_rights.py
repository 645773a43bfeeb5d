# SPDX-License-Identifier: Apache-2.0
"""Owners and modes of gpuhook's files: what it installs, and what it writes on a node."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.contract import runtimes
from tests.contract.bundles import Bundle
from tests.contract.installation import Installation
from tests.contract.runtimes import run_command

BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
SPECIAL = stat.S_ISUID | stat.S_ISGID


def files_below(*places: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield the files and directories in these directories, and the directories themselves."""
    for place in places:
        for path in [place, *place.rglob("*")]:
            if not path.is_symlink():
                yield path, path.stat()


def assert_owned_by_root(*places: Path) -> None:
    """Only root may write, and no program has the rights of its owner."""
    wrong = {
        str(path): f"{found.st_uid}:{found.st_gid} {found.st_mode:o}"
        for path, found in files_below(*places)
        if found.st_uid or found.st_gid or found.st_mode & (BY_OTHERS | SPECIAL)
    }
    assert wrong == {}


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Let programs of this test create files with the modes that they name."""
    old = os.umask(0)
    yield
    os.umask(old)


def test_files_on_a_node(
    apart: Installation, bundle_of: Callable[..., Bundle], no_umask: None
) -> None:
    """State and specs are root's, whatever the umask; only root reads the names of pods."""
    for directory in (apart.state, apart.specs):
        directory.mkdir(exist_ok=True)
        directory.chmod(0o755)
    env = {**os.environ, **apart.on("runc")}
    program = str(apart.bindir / "gpuhook")
    generate = ["generate-cdi", *apart.node.options, "--output-file", str(apart.spec)]
    for words in (generate, ["refresh", "--force"]):
        done = run_command([program, *words], env)
        assert done.rc == 0, done
    made = bundle_of("debian", ["/probe"], ["NVIDIA_VISIBLE_DEVICES=0"])
    done = runtimes.run(made, [apart.runtime], env=apart.on("runc"))
    assert done.rc == 0, done
    assert (apart.state / "compiled").is_dir()
    assert_owned_by_root(apart.state, apart.specs)
    ledger = apart.state / "containers"
    modes = {stat.S_IMODE(found.st_mode) for _, found in files_below(ledger)}
    assert modes == {0o700, 0o600}


def test_installed_files(bindir: Path) -> None:
    """No program has another user's rights, or an interpreter that the PATH finds."""
    prefix = bindir.parent
    assert_owned_by_root(prefix)
    programs = [path for path in bindir.iterdir() if path.is_file()]
    assert len(programs) >= 4
    for path in programs:
        with path.open("rb") as file:
            first = file.readline().decode("utf-8", "replace")
        interpreter, _, options = first.strip().partition(" ")
        assert re.match(r"#!/(?!usr/bin/env\b)", interpreter), (path, first)
        if "python" in interpreter:
            assert options == "-IS", (path, first)
