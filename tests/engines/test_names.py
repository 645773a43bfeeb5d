# SPDX-License-Identifier: Apache-2.0
"""Containers by the names that Docker, podman of root and of a user, Compose and ctr give them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.engines.docker_engine import IMAGE, dockerd
from tests.engines.engine_node import EngineNode
from tests.engines.podman_user import UID, PodmanUser, document

SLEEP = (IMAGE, "sleep", "1000")
DOCKER = ("docker", "run", "--detach", "--network=none", "--name")
# runc: crun of trixie refuses the hybrid cgroups of the machine.
PODMAN = ("podman", "--runtime=/usr/sbin/runc", "run", "--detach", "--network=none", "--name")
SOCKET = "--address=/run/docker/containerd/containerd.sock"
COMPOSE = f"""
services:
  web:
    image: {IMAGE}
    network_mode: none
    command: [sleep, "1000"]
"""


@dataclass(frozen=True)
class Names:
    """The ids of containers by their names, and the name that Compose has chosen."""

    ids: dict[str, str]
    compose: str


@pytest.fixture(scope="module")
def names(node: EngineNode, docker_image: str, podman_image: str) -> Iterator[Names]:
    """Run containers of Docker, podman, Compose and ctr; both engines have one named `both`."""
    del docker_image, podman_image
    with dockerd(node):
        ids = {
            "trainer": node.check(*DOCKER, "trainer", *SLEEP).strip(),
            "learner": node.check(*PODMAN, "learner", *SLEEP).strip(),
        }
        for words in (DOCKER, PODMAN):
            node.check(*words, "both", *SLEEP)
            node.check(*words, f"ended-{words[0]}", IMAGE, "true")
        node.path("/srv/shop").mkdir()
        node.path("/srv/shop/docker-compose.yml").write_text(COMPOSE, encoding="ascii")
        node.check("sh", "-c", "cd /srv/shop && (docker compose up -d || docker-compose up -d)")
        label = "--filter=label=com.docker.compose.service=web"
        shown = node.check("docker", "ps", "--no-trunc", label, "--format={{.ID}} {{.Names}}")
        service = shown.split()
        ids["shop/web"] = ids["web"] = ids[service[1]] = service[0]
        node.check("sh", "-c", f"docker save {IMAGE} | ctr {SOCKET} image import -")
        image = node.check("ctr", SOCKET, "image", "list", "--quiet").strip()
        node.check("ctr", SOCKET, "run", "--detach", image, "sleeper", "sleep", "1000")
        yield Names({**ids, "sleeper": "sleeper"}, service[1])
        node.run("sh", "-c", "docker rm --force $(docker ps -aq); podman rm --all --force --time=0")
        node.run("ctr", SOCKET, "task", "kill", "--signal=KILL", "sleeper")


def inspected(node: EngineNode, name: str) -> dict[str, Any]:
    document = json.loads(node.check("gpuhook", "inspect", name, "-o", "json"))
    container: dict[str, Any] = document["container"]
    return container


@pytest.mark.parametrize(
    ("name", "engine", "image"),
    [
        ("trainer", "docker", IMAGE),
        ("learner", "podman", f"localhost/{IMAGE}"),
        ("shop/web", "docker", IMAGE),
        ("web", "docker", IMAGE),
        ("sleeper", "containerd", f"docker.io/library/{IMAGE}"),
    ],
)
def test_names_of_engines(
    node: EngineNode, names: Names, name: str, engine: str, image: str
) -> None:
    """A name, and the beginning of the id, identify the container; it has name and image."""
    known = {"web": names.compose, "shop/web": names.compose, "sleeper": None}.get(name, name)
    for text in (name, names.ids[name], names.ids[name][:12]):
        found = inspected(node, text)
        assert (found["id"], found["engine"]) == (names.ids[name], engine)
        assert (found["name"], found["image"]) == (known, image)


def test_compose_name(node: EngineNode, names: Names) -> None:
    assert inspected(node, names.compose)["id"] == names.ids["web"]


def test_ambiguous_name(node: EngineNode, names: Names) -> None:
    """The error lists the containers of both engines, whose ids identify them."""
    refused = node.run("gpuhook", "inspect", "both")
    assert refused.rc != 0
    assert "GH1736" in refused.stderr
    for engine in ("docker", "podman"):
        identity = node.check(engine, "ps", "--no-trunc", "--quiet", "--filter=name=^both$").strip()
        assert f"{identity} ({engine} both, running" in refused.stderr
        assert inspected(node, identity)["engine"] == engine


@pytest.mark.parametrize("engine", ["docker", "podman"])
@pytest.mark.parametrize("command", ["inspect", "explain", "compare", "repair"])
def test_stopped_container(
    node: EngineNode,
    names: Names,
    engine: str,
    command: str,
) -> None:
    refused = node.run("gpuhook", command, f"ended-{engine}")
    assert refused.rc != 0
    assert f"GH1738: container ended-{engine} is not running: it is stopped" in refused.stderr


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_attach_by_name(
    node: EngineNode, names: Names, engine: str, covers: Callable[..., None]
) -> None:
    """`attach NAME` gives the container GPU 2; `ps`, `explain` and `compare` know it; `detach`."""
    name = {"docker": "trainer", "podman": "learner"}[engine]
    node.check("gpuhook", "attach", name, "--device", "2")
    assert node.run(engine, "exec", name, "test", "-c", node.device(2)).rc == 0
    (one,) = json.loads(node.check("gpuhook", "ps", "-o", "json"))["containers"]
    assert (one["id"], one["name"], one["engine"]) == (names.ids[name], name, engine)
    assert one["image"].endswith(IMAGE)
    assert names.ids[name] in node.check("gpuhook", "explain", name)
    node.check("gpuhook", "detach", name, "--device", "2")
    assert json.loads(node.check("gpuhook", "ps", "-o", "json"))["containers"] == []
    covers(engine.capitalize().replace("Podman", "podman"), node.version(engine, "--version"),
           "attach by the name of the container")  # fmt: skip


def test_unknown_name(node: EngineNode, names: Names) -> None:
    refused = node.run("gpuhook", "inspect", "trianer")
    assert refused.rc != 0
    assert "GH1735" in refused.stderr
    assert "there are trainer, " in refused.stderr


def test_completion(node: EngineNode, names: Names) -> None:
    words = ("COMP_WORDS=gpuhook inspect ", "COMP_CWORD=2", "_GPUHOOK_COMPLETE=bash_complete")
    offered = node.check("env", *words, "gpuhook").split()
    for name in ("trainer", "learner", "both", names.compose, "sleeper", names.ids["trainer"]):
        assert f"plain,{name}" in offered


@pytest.fixture(scope="module")
def rootless(node: EngineNode, names: Names) -> Iterator[tuple[PodmanUser, str]]:
    """Run a user's containers `job`, whose id follows, and `trainer`, as one of root is named."""
    del names
    user = PodmanUser(node, is_rootless=True, runtime="runc")
    with user.sleeping("--name=job") as job, user.sleeping("--name=trainer"):
        yield user, job
    user.podman("system", "migrate")  # ends the user's first process


def test_name_of_a_user(
    node: EngineNode,
    names: Names,
    rootless: tuple[PodmanUser, str],
    covers: Callable[..., None],
) -> None:
    """Root and the user find it by its name, and only the user changes it."""
    user, job = rootless
    found = inspected(node, "job")
    assert (found["id"], found["name"], found["engine"]) == (job, "job", "podman")
    assert found["image"] == f"localhost/{IMAGE}"
    assert inspected(node, "trainer")["id"] == names.ids["trainer"]
    refused = node.run("gpuhook", "attach", "job", "--device", "2")
    assert f"GH1756: container {job} belongs to user {UID}" in refused.stderr
    for name, device in ("job", "2"), ("trainer", "3"):
        assert user.gpuhook("attach", name, "--device", device).rc == 0
        seen = document(user.gpuhook("inspect", name, "-o", "json"))["container"]
        assert (seen["name"], seen["engine"]) == (name, "podman")
        done = user.gpuhook("detach", name, "--device", device, "--force")
        assert f"unmount {node.device(int(device))}" in done.stdout, done
    covers("podman", node.version("podman", "--version"),
           "attach by the name of the container", user.name)  # fmt: skip
