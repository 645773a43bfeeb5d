# SPDX-License-Identifier: Apache-2.0
"""AMD GPUs on a node that has them in place: by gpuhook-runtime, in each engine, and by setup."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract import bundles
from tests.contract.build_cache import cache
from tests.contract.views import view
from tests.engines import containerd as containerds
from tests.engines import docker_engine, podman_user
from tests.engines.amd_node import SPEC, AmdNode, amd_node
from tests.engines.docker_engine import daemon_json, dockerd
from tests.engines.engine_node import low_level_runtime
from tests.engines.podman_user import WRAPPER, PodmanUser
from tests.engines.releases import RELEASES
from tests.engines.test_setup import document, listing, states, undo

Covers = Callable[..., None]
REQUEST = "AMD_VISIBLE_DEVICES"
VALUES: dict[str, tuple[int, ...]] = {
    "3": (3,),
    "0,5-6": (0, 5, 6),
    "0000:05:00.0": (0,),
    "all": tuple(range(8)),
    "none": (),
}
LOW_LEVEL = pytest.mark.parametrize("low_level", ["runc", "crun"])
VALUE = pytest.mark.parametrize("value", VALUES)


@pytest.fixture(scope="session", params=sorted(RELEASES))
def node(request: pytest.FixtureRequest) -> Iterator[AmdNode]:
    """Yield a node of each Debian release with eight AMD GPUs."""
    if os.geteuid() != 0:
        pytest.skip("engines need root")
    place = Path(mkdtemp(prefix="engines-", dir=cache()))
    with amd_node(RELEASES[request.param], place) as made:
        yield made


@pytest.fixture(scope="module")
def docker(node: AmdNode) -> AmdNode:
    """Return the node with an image for its Docker."""
    docker_engine.import_image(node)
    return node


@pytest.fixture(scope="module")
def podman(node: AmdNode) -> AmdNode:
    """Return the node with an image for its podman."""
    podman_user.prepare(node)
    return node


@VALUE
@LOW_LEVEL
def test_low_level(node: AmdNode, low_level: str, value: str, covers: Covers) -> None:
    """gpuhook-runtime without an engine."""
    place, root = "/srv/bundle", "/srv/low-level"
    if not node.path(root).exists():
        node.image_root("debian", "low-level")
    bundles.bundle(node.path(place), Path(root), node.probe, [f"{REQUEST}={value}"])
    with low_level_runtime(node, low_level):
        done = node.check("gpuhook-runtime", "run", "--bundle", place, "amd-test")
    node.assert_nodes(view(done), *VALUES[value])
    covers(low_level, node.version(low_level, "--version"), "gpuhook-runtime, AMD")


@VALUE
@LOW_LEVEL
def test_docker(docker: AmdNode, low_level: str, value: str, covers: Covers) -> None:
    """`docker run --runtime amd`, as `gpuhook configure docker` names the runtime here."""
    words = ["docker", "run", "--rm", "--network=none", "--runtime=amd", f"--env={REQUEST}={value}"]
    with (
        low_level_runtime(docker, low_level) as program,
        docker_engine.configured(docker),
        dockerd(docker),
    ):
        seen = view(docker.check(*words, docker_engine.IMAGE, *docker.probe))
    docker.assert_nodes(seen, *VALUES[value])
    covers("Docker", docker.version("docker", "--version"), "--runtime amd", program)


@VALUE
@LOW_LEVEL
def test_podman(podman: AmdNode, low_level: str, value: str, covers: Covers) -> None:
    """podman with gpuhook-runtime as its runtime."""
    user = PodmanUser(podman, is_rootless=False, runtime=low_level)
    words = ["run", "--rm", "--network=none", "--cap-add=MKNOD", f"--env={REQUEST}={value}"]
    with low_level_runtime(podman, low_level) as program:
        done = user.podman(*words, podman_user.IMAGE, *podman.probe, runtime=WRAPPER)
    podman.assert_nodes(view(done), *VALUES[value])
    version = podman.version("podman", "--version")
    covers("podman", version, "--runtime gpuhook-runtime, AMD", program)


@pytest.mark.parametrize("route", ["hook", "wrapper"])
def test_podman_configured(podman: AmdNode, route: str, covers: Covers) -> None:
    """`gpuhook configure podman`: the prestart hook, and the runtime `amd`."""
    user = PodmanUser(podman, is_rootless=False, runtime="runc")
    words = ["run", "--rm", "--network=none", "--cap-add=MKNOD", f"--env={REQUEST}=3"]
    before = listing(podman)
    user.check("gpuhook", "configure", "podman", "--route", route)
    try:
        runtime = {"hook": "runc", "wrapper": "amd"}[route]
        done = user.podman(*words, podman_user.IMAGE, *podman.probe, runtime=runtime)
        podman.assert_nodes(view(done), 3)
    finally:
        user.check("gpuhook", "configure", "undo", "podman")
    assert listing(podman) == before
    name = {"hook": "hooks.d, AMD", "wrapper": "--runtime amd"}[route]
    covers("podman", podman.version("podman", "--version"), name)


def test_podman_device(podman: AmdNode) -> None:
    """The first spec of `gpuhook refresh` has a version of CDI that this podman reads."""
    user = PodmanUser(podman, is_rootless=False, runtime="runc")
    words = ["run", "--rm", "--network=none", "--cap-add=MKNOD", "--device=amd.com/gpu=3"]
    done = user.podman(*words, podman_user.IMAGE, *podman.probe)
    podman.assert_nodes(view(done), 3)


@LOW_LEVEL
@VALUE
def test_containerd(node: AmdNode, low_level: str, value: str, covers: Covers) -> None:
    """A pod of the RuntimeClass `amd`, whose variable its image or the device plugin has set."""
    asked = Allocation(envs={REQUEST: value})
    with (
        low_level_runtime(node, low_level) as program,
        containerds.configured(node),
        containerds.containerd(node) as server,
        server.pod("amd", "amd") as pod,
    ):
        seen = server.view(pod, asked, *node.probe[1:])
    node.assert_nodes(seen, *VALUES[value])
    covers("containerd", containerds.version(node), "RuntimeClass amd", program)


@pytest.fixture
def bare(node: AmdNode) -> Iterator[AmdNode]:
    """Yield the node without a CDI spec; its tree must be the same in the end."""
    before = node.path("/run/cdi/amd.yaml").read_bytes()
    node.check("rm", SPEC)
    tree = listing(node)
    try:
        yield node
        assert listing(node) == tree
    finally:
        for engine in ("containerd", "docker", "podman"):
            node.run("gpuhook", "configure", "undo", engine)
        node.path("/run/cdi/amd.yaml").write_bytes(before)


def proof(found: dict[str, Any], engine: str) -> list[str]:
    """Return the lines of the container of an engine, after its command."""
    results = found["results"]
    (lines,) = [
        one["lines"] for one in results if (one["step"], one["engine"]) == ("container", engine)
    ]
    return [str(line) for line in lines[1:]]


def test_setup_of_docker(bare: AmdNode, docker: AmdNode) -> None:
    """Docker's container sees one GPU by the runtime `amd`, and undo is complete."""
    del docker
    with daemon_json(bare, "{}\n"):
        found = document(bare, "--yes", "--engine", "docker")
        assert found["engines"][0]["runtimeName"] == "amd"
        with dockerd(bare):
            again = document(bare, "--yes", "--engine", "docker")
            assert states(again)["container of docker"] == "done"
            assert proof(again, "docker")[:2] == ["card1", "renderD128"]
        undo(bare, found["undo"])


def test_setup_of_podman(bare: AmdNode, podman: AmdNode) -> None:
    """podman's container sees one GPU by a CDI spec that podman reads."""
    del podman
    found = document(bare, "--yes", "--engine", "podman")
    assert states(found)["container of podman"] == "done"
    assert proof(found, "podman")[:2] == ["card1", "renderD128"]
    undo(bare, found["undo"])


def test_setup_of_containerd(bare: AmdNode) -> None:
    """The runtime of containerd's handler `amd` runs a container with one GPU."""
    with containerds.configuration(bare):
        found = document(bare, "--yes", "--engine", "containerd")
        assert found["engines"][0]["runtimeName"] == "amd"
        assert states(found)["container of containerd"] == "done"
        assert proof(found, "containerd")[:2] == ["card1", "renderD128"]
        undo(bare, found["undo"])
