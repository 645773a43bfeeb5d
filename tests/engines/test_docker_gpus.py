# SPDX-License-Identifier: Apache-2.0
"""Docker's `--gpus`, by the prestart hook."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.contract import package_builds
from tests.contract.installation import ALL_CONTROL, CONTROL, LIBRARIES
from tests.engines.docker_engine import (
    HOOK,
    Docker,
    assert_gpus,
    configured,
    daemon_json,
    dockerd,
)
from tests.engines.engine_node import EngineNode, low_level_runtime

COMPAT = "gpuhook-nvidia-compat"
RUNTIMES = '{"runtimes": {"crun": {"path": "/usr/bin/crun"}}}\n'
ALL = tuple(range(8))
GPUS: dict[str, tuple[int, ...]] = {
    "all": ALL,
    "2": (0, 1),
    "driver=nvidia,count=3": (0, 1, 2),
    "device=4": (4,),
    '"device=1,3"': (1, 3),
    "device=GPU-c6572ae8-3b1d-4f90-87e4-1a9d5f60b3c2": (6,),
    'device=5,"capabilities=compute,utility,video"': (5,),
}
UTILITY = 'device=5,"capabilities=utility"'
GRAPHICS = 'device=5,"capabilities=graphics"'


@contextmanager
def route_hook(node: EngineNode) -> Iterator[None]:
    """Configure `--gpus` by `gpuhook configure docker --route hook`."""
    with configured(node, "--route", "hook", text=RUNTIMES):
        yield
    assert not node.path(HOOK).exists()


@contextmanager
def compat_package(node: EngineNode) -> Iterator[None]:
    """Install the package that has NVIDIA's names."""
    (archive,) = package_builds.built().glob(f"{COMPAT}*.deb")
    shutil.copyfile(archive, node.path("/tmp") / archive.name)
    node.check("dpkg", "--install", f"/tmp/{archive.name}")
    try:
        with daemon_json(node, RUNTIMES):
            yield
    finally:
        node.check("dpkg", "--purge", COMPAT)


@pytest.fixture(
    scope="module",
    params=[(route_hook, "runc"), (route_hook, "crun"), (compat_package, "runc")],
    ids=["hook-runc", "hook-crun", "compat-runc"],
)
def docker(node: EngineNode, docker_image: str, request: pytest.FixtureRequest) -> Iterator[Docker]:
    """Start a dockerd that finds nvidia-container-runtime-hook."""
    del docker_image
    prepare, low_level = request.param
    with low_level_runtime(node, low_level), prepare(node), dockerd(node):
        yield Docker(node, low_level, ("--runtime", low_level))


@pytest.mark.parametrize("value", GPUS)
def test_gpus(docker: Docker, value: str, covers: Callable[..., None]) -> None:
    """`--gpus` gives a container the GPUs that it names, and no others."""
    assert_gpus(docker, docker.view("--gpus", value), *GPUS[value])
    covers("Docker", docker.version, "--gpus", docker.low_level_version)


@pytest.mark.parametrize(
    ("value", "control", "library", "has_it"),
    [
        (UTILITY, {"/dev/nvidiactl"}, "libcuda.so.1", False),
        (UTILITY, {"/dev/nvidiactl"}, "libnvidia-ml.so.1", True),
        (GRAPHICS, ALL_CONTROL - CONTROL | {"/dev/nvidiactl"}, "libGLX_nvidia.so.0", True),
        ('device=5,"capabilities=compute,utility"', CONTROL, "libGLX_nvidia.so.0", False),
    ],
)
def test_capabilities(
    docker: Docker, value: str, control: set[str], library: str, *, has_it: bool
) -> None:
    """The capabilities of `--gpus` decide about files and control nodes."""
    seen = docker.view("--gpus", value)
    assert_gpus(docker, seen, 5, control=control, has_files=False)
    listed = docker.node.run(
        *("docker", "run", "--rm", "--network=none", *docker.options, "--gpus", value),
        *("probe:1", "ls", f"{LIBRARIES}/{library}"),
    )
    assert (listed.rc == 0) == has_it, listed


def test_gpu_that_does_not_exist(docker: Docker) -> None:
    """The reason is in Docker's error; crun discards it, and the node's log has it."""
    done = docker.run("--gpus", "device=99")
    assert done.rc != 0
    log = docker.node.check("cat", "/run/gpuhook/hook.log")
    assert "GH1102" in (log if docker.low_level == "crun" else done.stderr)


def test_container_without_gpus(docker: Docker) -> None:
    assert_gpus(docker, docker.view(), control=set(), has_files=False)


def test_variable(docker: Docker) -> None:
    """A hook cannot change variables: the container has that of dockerd."""
    assert docker.view("--gpus", "device=4").values("NVIDIA_VISIBLE_DEVICES") == ["4"]


@pytest.mark.parametrize("options", [("--privileged",), ("--user", "1000:1000")])
def test_options(docker: Docker, options: tuple[str, ...]) -> None:
    if options == ("--privileged",) and docker.starts_no_privileged():
        return
    seen = docker.view(*options, "--gpus", "device=4")
    mine = ALL if options == ("--privileged",) else (4,)
    control = ALL_CONTROL if options == ("--privileged",) else CONTROL
    assert set(seen.gpus()) == control | {docker.node.device(index) for index in mine}
    assert all(one.allowed for one in seen.gpus().values())


def test_restart(docker: Docker) -> None:
    with docker.container("--gpus", "device=4") as name:
        docker.node.check("docker", "restart", name)
        assert_gpus(docker, docker.executed(name), 4)
        found = docker.listed()[name]
    assert (found["route"], found["gpus"]) == ("prestart", [docker.uuid(4)])
