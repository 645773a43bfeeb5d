# SPDX-License-Identifier: Apache-2.0
"""Commands on running containers of Docker, and containers that survive their dockerd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.installation import ALL_CONTROL, CONTROL, MAJOR
from tests.engines.docker_engine import (
    LOW_LEVEL,
    WRAPPER,
    Docker,
    assert_gpus,
    configured,
    dockerd,
)
from tests.engines.engine_node import EngineNode, low_level_runtime

KEEPS = {
    "live-restore": True,
    "runtimes": {
        "crun": {"path": "/usr/bin/crun"},
        "nvidia": {"path": "/usr/bin/gpuhook-runtime"},
    },
}
CDI = {"features": {"cdi": True}}
HAS_CDI = pytest.mark.releases("trixie", "forky")  # Docker 20.10 has no CDI


@pytest.fixture(scope="module", params=LOW_LEVEL)
def docker(node: EngineNode, docker_image: str, request: pytest.FixtureRequest) -> Iterator[Docker]:
    """Start a dockerd with all integrations at once."""
    del docker_image
    has_cdi = node.release.suite != "bookworm"
    text = json.dumps({**KEEPS, **(CDI if has_cdi else {})})
    with (
        low_level_runtime(node, request.param),
        configured(node, "--route", "hook", text=text),
        dockerd(node),
    ):
        yield Docker(node, request.param)


@pytest.fixture(params=["wrapper", "prestart", pytest.param("cdi", marks=HAS_CDI)])
def container(docker: Docker, request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """Yield the id of a container that has GPU 2, and its integration."""
    options = {
        "wrapper": (*WRAPPER, "NVIDIA_VISIBLE_DEVICES=2"),
        "prestart": ("--runtime", docker.low_level, "--gpus", "device=2"),
        "cdi": ("--runtime", docker.low_level, "--device", "nvidia.com/gpu=2"),
    }
    with docker.container(*options[request.param]) as name:
        yield name, request.param


def _control(integration: str) -> set[str]:
    """Return the control nodes: an engine that applies a CDI spec adds all of them."""
    return ALL_CONTROL if integration == "cdi" else CONTROL


def test_attach_and_detach(docker: Docker, container: tuple[str, str]) -> None:
    """A container gets another GPU and loses it, and loses the GPU that it was created with."""
    name, integration = container
    control = _control(integration)
    for words, indexes in (
        (("attach", name, "--device", "0"), (0, 2)),
        (("attach", name[:12], "--device", "0"), (0, 2)),
        (("detach", name, "--device", docker.uuid(0)), (2,)),
    ):
        docker.node.check("gpuhook", *words)
        assert_gpus(docker, docker.executed(name), *indexes, control=control)
    docker.node.check("gpuhook", "detach", name, "--device", "2")
    left = set() if integration == "prestart" else control  # what the hook added goes, too
    assert_gpus(docker, docker.executed(name), control=left, has_files=bool(left))
    docker.node.check("docker", "restart", name)
    assert_gpus(docker, docker.executed(name), 2, control=control)


def test_repair(docker: Docker, container: tuple[str, str]) -> None:
    """After a change of the device rules, as by a daemon-reload, `repair` restores them."""
    name, integration = container
    _deny(docker, name)
    node = docker.node.device(2)
    assert not docker.executed(name).gpus()[node].allowed
    broken = docker.node.run("gpuhook", "inspect", "--exit-code", name)
    assert broken.rc == 1
    assert "GH1744" in broken.stdout + broken.stderr
    docker.node.check("gpuhook", "repair", name)
    assert_gpus(docker, docker.executed(name), 2, control=_control(integration))
    docker.node.check("gpuhook", "inspect", "--exit-code", name)
    assert docker.document("repair", name)["containers"][0]["steps"] == []


def _deny(docker: Docker, name: str) -> None:
    """Remove the rules of NVIDIA's nodes from a cgroup of v1."""
    rules = Path(docker.document("inspect", name)["cgroup"]["path"])
    for line in (rules / "devices.list").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"c {MAJOR}:"):
            (rules / "devices.deny").write_text(line, encoding="utf-8")


def test_reports(docker: Docker, container: tuple[str, str]) -> None:
    """ps, map, inspect, explain, limits and compare report the GPU, by the integration."""
    name, integration = container
    uuid = docker.uuid(2)
    listed = docker.listed()[name]
    assert (listed["engine"], listed["route"], listed["gpus"]) == ("docker", integration, [uuid])
    inspected = docker.document("inspect", name)["container"]
    assert (inspected["engine"], inspected["runtime"]) == ("docker", docker.low_level)
    assert inspected["pid"] == docker.pid(name)
    (explained,) = docker.document("explain", name)["containers"]
    assert (explained["result"], [one["gpu"] for one in explained["gpus"]]) == ("gets", [uuid])
    (limited,) = docker.document("limits", "show", name)["containers"]
    assert [one["gpu"] for one in limited["gpus"]] == [uuid]
    assert listed["name"] in docker.node.check("gpuhook", "map", "--width=200")
    if integration != "cdi":  # an engine that applies a CDI spec adds all of its files
        (compared,) = docker.document("compare", name)["containers"]
        assert (compared["container"], compared["givenBy"]) == (name, "gpuhook")
        assert compared["counts"]["differences"] == 0, compared


def test_users(docker: Docker, container: tuple[str, str]) -> None:
    """`configure users` lists the containers that need gpuhook to start again."""
    name, integration = container
    users = docker.node.check("gpuhook", "configure", "users", "docker", "-o", "name").split()
    assert (name in users) == (integration != "cdi")
