# SPDX-License-Identifier: Apache-2.0
"""Docker of each release with gpuhook-runtime, and runc or crun as its low-level runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.contract.installation import ALL_CONTROL, CONTROL
from tests.engines.docker_engine import (
    IMAGE,
    LOW_LEVEL,
    WRAPPER,
    Docker,
    assert_gpus,
    configured,
    dockerd,
)
from tests.engines.engine_node import EngineNode, low_level_runtime
from tests.waiting import eventually

ALL = tuple(range(8))
VALUES: dict[str, tuple[int, ...]] = {
    "2": (2,),
    "0,3": (0, 3),
    "GPU-c6572ae8-3b1d-4f90-87e4-1a9d5f60b3c2": (6,),
    "nvidia.com/gpu=5": (5,),
    "all": ALL,
    "none": (),
}


@pytest.fixture(scope="module", params=LOW_LEVEL)
def docker(node: EngineNode, docker_image: str, request: pytest.FixtureRequest) -> Iterator[Docker]:
    """Start dockerd as `gpuhook configure docker` configures it."""
    del docker_image
    with low_level_runtime(node, request.param), configured(node), dockerd(node):
        yield Docker(node, request.param)


@pytest.mark.parametrize("value", VALUES)
def test_requests(docker: Docker, value: str, covers: Callable[..., None]) -> None:
    """`--runtime nvidia` gives a container the GPUs of NVIDIA_VISIBLE_DEVICES, and no others."""
    seen = docker.view(*WRAPPER, f"NVIDIA_VISIBLE_DEVICES={value}")
    assert_gpus(docker, seen, *VALUES[value])
    assert seen.values("NVIDIA_VISIBLE_DEVICES") == ["void"]
    covers("Docker", docker.version, "--runtime nvidia", docker.low_level_version)


@pytest.mark.parametrize("options", [(), (*WRAPPER, "NVIDIA_VISIBLE_DEVICES=void"), WRAPPER[:2]])
def test_container_without_a_request(docker: Docker, options: tuple[str, ...]) -> None:
    seen = docker.view(*options)
    assert_gpus(docker, seen, control=set(), has_files=False)
    assert not [mount for mount in seen.mounts if "nvidia" in mount]


def test_gpu_that_does_not_exist(docker: Docker) -> None:
    """The reason is in Docker's error."""
    done = docker.run(*WRAPPER, "NVIDIA_VISIBLE_DEVICES=99")
    assert done.rc != 0
    assert "GH1102" in done.stderr
    assert "99" in done.stderr


def test_capabilities(docker: Docker) -> None:
    """`NVIDIA_DRIVER_CAPABILITIES` decides about files and control nodes."""
    words = [*WRAPPER, "NVIDIA_VISIBLE_DEVICES=1", "--env", "NVIDIA_DRIVER_CAPABILITIES=all"]
    assert_gpus(docker, docker.view(*words), 1, control=ALL_CONTROL)


def test_user(docker: Docker) -> None:
    seen = docker.view("--user", "1000:1000", *WRAPPER, "NVIDIA_VISIBLE_DEVICES=4")
    assert (seen.uid, seen.gid) == (1000, 1000)
    assert set(seen.gpus()) == CONTROL | {docker.node.device(4)}
    assert all(one.allowed for one in seen.gpus().values())


def test_privileged(docker: Docker) -> None:
    """A privileged container has all nodes of the host, by Docker; gpuhook adds the driver.

    Docker 20.10 requests all capabilities, and starts no such container on a machine without one.
    """
    if docker.starts_no_privileged():
        return
    seen = docker.view("--privileged", *WRAPPER, "NVIDIA_VISIBLE_DEVICES=4")
    assert_gpus(docker, seen, *ALL, control=ALL_CONTROL)


def test_exec_and_restarts(docker: Docker) -> None:
    """A container has the same GPU for `docker exec`, and after stop, start, restart and kill."""
    with docker.container(*WRAPPER, "NVIDIA_VISIBLE_DEVICES=3") as name:
        assert_gpus(docker, docker.executed(name), 3)
        assert docker.executed(name, "--user", "1000").uid == 1000
        for verbs in (["restart"], ["stop", "start"], ["kill", "start"]):
            for verb in verbs:
                docker.node.check("docker", verb, name)
                assert (name in docker.listed()) == (verb in {"restart", "start"})
            assert_gpus(docker, docker.executed(name), 3)


@pytest.mark.parametrize("policy", ["always", "on-failure"])
def test_restart_policy(docker: Docker, policy: str) -> None:
    """A container that Docker starts again has its GPU again."""
    with docker.container(f"--restart={policy}", *WRAPPER, "NVIDIA_VISIBLE_DEVICES=3") as name:
        before = docker.pid(name)
        docker.node.check("kill", "-KILL", str(before))
        eventually(lambda: docker.pid(name) not in {0, before}, "the next process")
        assert_gpus(docker, docker.executed(name), 3)


@pytest.mark.every_case
def test_low_level_runtime(docker: Docker) -> None:
    """The runtime of gpuhook's settings runs the container, and gpuhook reads its state."""
    with docker.container(*WRAPPER, "NVIDIA_VISIBLE_DEVICES=0") as name:
        found = docker.document("inspect", name)["container"]
    assert (found["engine"], found["runtime"]) == ("docker", docker.low_level)


def test_image(docker: Docker) -> None:
    """`docker image inspect` describes an image to `gpuhook explain -`."""
    command = f"docker image inspect {IMAGE} | gpuhook explain --env NVIDIA_VISIBLE_DEVICES=2 -"
    assert "it gets GPU 2" in docker.node.check("sh", "-c", command)
