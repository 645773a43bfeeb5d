# SPDX-License-Identifier: Apache-2.0
"""What the demo tells its reader to try."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.demo import act1, act2, act3, act4, act5, demo_node
from tests.demo.page import Page


def test_what_to_try_next(
    node8: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command works, in that order, from the directory in which the demo was called."""
    monkeypatch.chdir(tmp_path)
    mine = node8.apart(tmp_path / "build")
    demo_node.write_environment(mine)
    commands = [
        command for command, _ in demo_node.live_commands(demo_node.keep_bundle(mine.place))
    ]
    said = {}
    try:
        for command in commands:
            with (tmp_path / "out").open("w") as out:  # a pipe would be the container's too
                shell = ["sh", "-c", f". build/env; {command} </dev/null"]
                done = subprocess.run(shell, stdout=out, stderr=subprocess.STDOUT, check=False)
            said[command] = (tmp_path / "out").read_text()
            assert done.returncode == 0, said
    finally:
        if os.path.exists("/run/runc/notebook"):
            subprocess.run([*commands[-1].split()], check=True)
    assert node8.device(0) in said["gpuhook inspect notebook"]
    assert "notebook" in said["gpuhook ps"]


@pytest.mark.thorough
def test_every_integration_gives_the_same_view(node8: Installation, short_path: Path) -> None:
    """Four integrations, then two replicas of one GPU; no container holds them afterwards."""
    mine = node8.apart(short_path / "node")
    assert act1.play(Page(), mine, short_path / "act1")
    assert "could not be checked" not in mine.gpuhook("ps").stderr


def test_the_kubernetes_node_keeps_its_promises(node8: Installation, short_path: Path) -> None:
    """The scenario of the seeds: ConfigMap, labels, two pods on one GPU, and a fault."""
    assert act2.play(Page(), node8, short_path / "act2")


def test_a_running_container_is_repaired_and_changed(node8: Installation, tmp_path: Path) -> None:
    """A daemon-reload is repaired, and a GPU comes and goes; `gpuhook ps` lists both containers."""
    assert act3.play(Page(), node8, tmp_path / "act3")


def test_a_share_of_memory_holds(node8: Installation, short_path: Path) -> None:
    """One asks for everything and fails alone, or is ended alone where the driver is too old."""
    assert act4.play(Page(), node8, short_path / "act4")


def test_what_is_wrong_is_named(node8: Installation, tmp_path: Path) -> None:
    """A node of NVIDIA's stack that is broken in three ways, and a manifest that is refused."""
    assert act5.play(Page(), node8, tmp_path / "act5")
