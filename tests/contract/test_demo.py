# SPDX-License-Identifier: Apache-2.0
"""The acts of the demo, and the commands that it prints."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.contract.installation import Installation
from tests.demo import act1, act2, act3, act4, act5, demo_node
from tests.demo.page import Page


def test_printed_commands_work(
    node8: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command works, in this order, from the directory in which the demo was called."""
    monkeypatch.chdir(tmp_path)
    mine = node8.apart(tmp_path / "build")
    demo_node.write_environment(mine)
    commands = [
        command for command, _ in demo_node.live_commands(demo_node.keep_bundle(mine.place))
    ]
    outputs = {}
    try:
        for command in commands:
            with (tmp_path / "out").open("w") as out:  # a pipe would be the container's too
                shell = ["sh", "-c", f". build/env; {command} </dev/null"]
                process = subprocess.run(shell, stdout=out, stderr=subprocess.STDOUT, check=False)
            outputs[command] = (tmp_path / "out").read_text()
            assert process.returncode == 0, outputs
    finally:
        if os.path.exists("/run/runc/notebook"):
            subprocess.run([*commands[-1].split()], check=True)
    assert node8.device(0) in outputs["gpuhook inspect notebook"]
    assert "notebook" in outputs["gpuhook ps"]


def programs(output: str) -> set[str]:
    """Return the programs of the commands that an act shows: it runs no cluster's kubectl."""
    return set(re.findall(r"^  \$ (\S+)", output, re.MULTILINE))


@pytest.mark.thorough
def test_act1_each_integration_provides_the_same_gpu(node8: Installation, short_path: Path) -> None:
    """Four integrations, then two replicas of one GPU, which no container holds afterwards."""
    mine = node8.apart(short_path / "node")
    assert act1.play(Page(), mine, short_path / "act1")
    assert "could not be checked" not in mine.gpuhook("ps").stderr


def test_act2_kubernetes_node(
    node8: Installation, short_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seeds' scenario: ConfigMap, labels, two pods on one GPU, and a fault."""
    assert act2.play(Page(), node8, short_path / "act2")
    assert programs(capsys.readouterr().out) == {"gpuhook"}


def test_act3_running_container(node8: Installation, tmp_path: Path) -> None:
    """A daemon-reload is repaired, a GPU is attached and detached, `gpuhook ps` lists both
    containers.
    """
    assert act3.play(Page(), node8, tmp_path / "act3")


@pytest.mark.thorough
def test_act4_memory_limit(
    node8: Installation, short_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container over its limit fails alone, or is ended alone if the driver is too old."""
    assert act4.play(Page(), node8, short_path / "act4")
    assert programs(capsys.readouterr().out) == {"gpuhook"}


def test_act5_diagnosis(node8: Installation, tmp_path: Path) -> None:
    """doctor names three faults of a node with NVIDIA's stack, and a manifest is refused."""
    assert act5.play(Page(), node8, tmp_path / "act5")
