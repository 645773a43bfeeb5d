# SPDX-License-Identifier: Apache-2.0
"""The Compose examples of docs/how-to/compose.md, run by the Compose of each release."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.contract.build_cache import CHECKOUT
from tests.contract.installation import ALL_CONTROL, CONTROL
from tests.engines.docker_engine import (
    IMAGE,
    WAIT,
    Docker,
    assert_gpus,
    configured,
    dockerd,
)
from tests.engines.engine_node import EngineNode

PAGE = CHECKOUT / "docs/how-to/compose.md"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = "/srv/compose.yaml"
RUNTIMES = {"runtimes": {"nvidia": {"path": "/usr/bin/gpuhook-runtime"}}}
CDI = {"features": {"cdi": True}}
NEWER = pytest.mark.releases("trixie", "forky")
NEWEST = pytest.mark.releases("forky")


@pytest.fixture(scope="module")
def docker(node: EngineNode, docker_image: str) -> Iterator[Docker]:
    """Start a dockerd with all integrations."""
    del docker_image
    text = json.dumps(RUNTIMES if node.release.suite == "bookworm" else RUNTIMES | CDI)
    with configured(node, "--route", "hook", text=text), dockerd(node):
        yield Docker(node)


@contextmanager
def up(docker: Docker, service: str) -> Iterator[str]:
    """Start a service of the page, with the image and the program of the tests; yield its id."""
    blocks = [yaml.safe_load(block) for block in BLOCK.findall(PAGE.read_text(encoding="utf-8"))]
    (found,) = [block["services"][service] for block in blocks if service in block["services"]]
    found |= {"image": IMAGE, "command": list(WAIT), "network_mode": "none"}
    document = {"version": "3.8", "services": {service: found}}
    docker.node.path(FILE).write_text(yaml.safe_dump(document), encoding="utf-8")
    compose = ("docker-compose", "--file", FILE)
    docker.node.check(*compose, "up", "--detach")
    try:
        yield docker.node.check(*compose, "ps", "--quiet", service).strip()
    finally:
        docker.node.check(*compose, "down", "--timeout", "1")


@pytest.mark.parametrize(
    ("service", "indexes", "route"),
    [
        ("runtime", (2,), "wrapper"),
        ("count", (0,), "prestart"),
        ("ids", (1, 3), "prestart"),
        pytest.param("cdi", (4,), "cdi", marks=NEWER),
        pytest.param("gpus", tuple(range(8)), "prestart", marks=NEWEST),
        pytest.param("devices", (5,), "cdi", marks=NEWEST),
    ],
)
def test_examples(
    docker: Docker,
    service: str,
    indexes: tuple[int, ...],
    route: str,
    covers: Callable[..., None],
) -> None:
    control = ALL_CONTROL if route == "cdi" else CONTROL
    with up(docker, service) as name:
        assert_gpus(docker, docker.executed(name), *indexes, control=control)
        found = docker.listed()[name]
        assert found["route"] == route
        assert set(found["gpus"]) == {docker.uuid(index) for index in indexes}
    version = docker.node.version("docker-compose", "version")
    covers("Compose", version, f"service `{service}` of docker.md", f"Docker {docker.version}")


@pytest.mark.releases("trixie")
def test_short_forms_that_an_older_compose_does_not_know(docker: Docker) -> None:
    """Compose 2.26 ignores `gpus`: the container has no GPU."""
    with up(docker, "gpus") as name:
        assert docker.executed(name).gpus() == {}
