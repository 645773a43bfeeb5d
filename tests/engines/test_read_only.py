# SPDX-License-Identifier: Apache-2.0
"""Commands that only read create, change and remove no file, not even a temporary one."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.engines.docker_engine import IMAGE, dockerd
from tests.engines.engine_node import EngineNode
from tests.engines.test_names import DOCKER, PODMAN

PLACES = ("/dev/shm", "/etc", "/home", "/opt", "/root", "/run", "/srv", "/tmp", "/usr", "/var")
COMMANDS = (
    "ps",
    "ps -o wide",
    "ps --isolation",
    "map",
    "map --html -",
    "inspect reader",
    "inspect watcher -o wide",
    "limits show",
    "limits show reader",
    "explain reader",
    "explain watcher",
    "compare reader",
    "compare --all",
    "doctor",
    "inventory",
)


@pytest.fixture(scope="module")
def running(node: EngineNode) -> Iterator[EngineNode]:
    """Run a container of Docker and one of podman, each with a GPU."""
    root = node.image_root("debian", "read-only")
    node.check("gpuhook", "configure", "docker")
    with dockerd(node):
        for engine in ("docker", "podman"):
            node.check("sh", "-c", f"tar -C {root} -c . | {engine} import - {IMAGE}")
        gpu = ("--runtime=nvidia", "--env=NVIDIA_VISIBLE_DEVICES=2")
        node.check(*DOCKER, "reader", *gpu, IMAGE, "sleep", "1000")
        node.check(*PODMAN, "watcher", "--device=nvidia.com/gpu=1", IMAGE, "sleep", "1000")
        node.run("rmdir", "/run/crun")
        yield node
        node.run("sh", "-c", "docker rm --force reader; podman rm --force --time=0 watcher")
    node.check("gpuhook", "configure", "undo", "docker")


def files(node: EngineNode) -> dict[str, tuple[int, ...]]:
    """Return the state of each file; a temporary file changes its directory's time."""
    found: dict[str, tuple[int, ...]] = {}
    for place in PLACES:
        for directory, _, names in os.walk(node.path(place)):
            for name in ("", *names):
                path = os.path.join(directory, name)
                status = os.lstat(path)
                times = (status.st_mtime_ns, status.st_ctime_ns)
                found[path] = (status.st_ino, status.st_mode, status.st_size, *times)
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_command_writes_nothing(running: EngineNode, command: str) -> None:
    before = files(running)
    done = running.run("gpuhook", *command.split())
    after = files(running)
    assert done.rc in {0, 1}, done
    assert done.stdout
    if command == "doctor":  # crun 1.8 makes a temporary file in /tmp, also for --version
        for times in (before, after):
            del times[f"{running.path('/tmp')}/"]
    differing = {
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    }
    assert not differing


def test_tables_have_names_images_and_gpus(running: EngineNode) -> None:
    """Of both engines; the UUIDs are in the wide tables."""
    uuids = [str(running.gpus.node.gpus[index].uuid) for index in (1, 2)]
    for command in ("ps", "map --width=100", "inspect watcher", "inspect reader"):
        shown = running.check("gpuhook", *command.split())
        held = {"watcher": 1, "reader": 2}
        for name, index in held.items():
            if name in command or not command.startswith("inspect"):
                assert name in shown
                assert IMAGE in shown
                assert f"{index} (H100 80GB HBM3)" in shown
        assert not any(uuid in shown for uuid in uuids)
    wide = running.check("gpuhook", "ps", "-o", "wide")
    assert all(uuid in wide for uuid in uuids)
    compared = running.run("gpuhook", "compare", "--all").stdout
    assert f"(watcher, {IMAGE})" in compared
    assert f"(reader, {IMAGE}), GPUs added by gpuhook" in compared
