# SPDX-License-Identifier: Apache-2.0
"""`gpuhook setup` on a booted node: systemd restarts Docker only if the user permits it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.engines.booted_node import BootedNode
from tests.engines.docker_engine import DAEMON_JSON
from tests.engines.terminal import on_terminal
from tests.engines.test_setup import SMI, document, seen, states, undo
from tests.simulated import build

IMAGE = "sleeper:1"


@pytest.fixture
def docker(booted: BootedNode) -> Iterator[BootedNode]:
    """Yield the node without a daemon.json, with a program for nvidia-smi and a running container.

    In the end it has no daemon.json again.
    """
    smi = booted.path(SMI)
    before = smi.read_bytes()
    shutil.copy(build.smi_list(booted.gpus.node.gpus), smi)
    root = booted.image_root("debian", "sleeper")
    booted.run("systemctl", "reset-failed")  # Docker's unit limits the number of its starts
    booted.check("systemctl", "start", "docker")
    booted.check("sh", "-c", f"tar -C {root} -c . | docker import - {IMAGE}")
    started = booted.check("docker", "run", "--detach", "--network=none", IMAGE, "sleep", "1000")
    assert not booted.path(DAEMON_JSON).exists()
    try:
        yield booted
        assert not booted.path(DAEMON_JSON).exists()
    finally:
        booted.run("gpuhook", "configure", "undo", "docker", "--restart")
        booted.check("docker", "rm", "--force", started.strip())
        booted.check("docker", "rmi", IMAGE)
        booted.check("rm", "-r", root)
        smi.write_bytes(before)


def main_pid(node: BootedNode) -> str:
    """Return the process of dockerd."""
    return node.show("docker.service", "MainPID")


def running(node: BootedNode) -> int:
    """Return the number of Docker's running containers."""
    return len(node.check("docker", "ps", "--quiet").split())


def test_yes_restarts_nothing(docker: BootedNode) -> None:
    """Without --restart, containers continue: Docker reloads its files if that is enough."""
    before = main_pid(docker)
    found = document(docker, "--yes", "--engine", "docker")
    is_reloaded = docker.release.suite != "trixie"  # Docker 26 reads features.cdi when it starts
    assert states(found)["container of docker"] == ("done" if is_reloaded else "skipped")
    assert (main_pid(docker), running(docker)) == (before, 1)
    assert ("a restart of dockerd stops its containers" in found["undoNotes"]) == is_reloaded
    undo(docker, found["undo"])
    assert (main_pid(docker) == before) != is_reloaded  # a reload removes no setting


@pytest.mark.releases("trixie")
def test_restart(docker: BootedNode) -> None:
    """With --restart, the container of the same run has its device; undo restarts Docker again."""
    before = main_pid(docker)
    found = document(docker, "--yes", "--engine", "docker", "--restart")
    assert states(found)["docker"] == "done"
    assert found["engines"][0]["endsContainers"]
    configured = main_pid(docker)
    assert configured != before
    (uuid,) = [one for one in seen(found, "docker") if one.startswith("MIG-")]
    assert uuid == docker.gpus.node.gpus[0].instances[0].uuid
    assert found["undo"][0] == "gpuhook configure undo docker --restart"
    undo(docker, found["undo"])
    assert main_pid(docker) != configured


@pytest.mark.releases("trixie")
@pytest.mark.parametrize("answer", ["\n", "y\n"], ids=["default", "yes"])
def test_question(docker: BootedNode, answer: str) -> None:
    """The question names the containers that a restart stops; the default is no."""
    before = main_pid(docker)
    answers = [
        ("Restart docker, which stops its containers (1 running) [y/N]", answer),
        ("Carry out this plan", "y\n"),
    ]
    done = on_terminal(docker, answers, "gpuhook", "setup", "--engine", "docker")
    assert done.rc == 0, done
    is_restarted = answer == "y\n"
    assert (main_pid(docker) != before) == is_restarted
    assert ("container of docker: done" in done.stdout) == is_restarted
    assert ("gpuhook configure undo docker --restart" in done.stdout) == is_restarted
    printed = done.stdout.rpartition("\nUndo\n")[2].splitlines()
    undo(docker, [line for line in printed if "gpuhook configure undo" in line])
