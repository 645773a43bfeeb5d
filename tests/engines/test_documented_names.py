# SPDX-License-Identifier: Apache-2.0
"""The commands of start/debug.md and how-to/live.md on containers with the example names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator

import pytest

from tests.contract.build_cache import CHECKOUT
from tests.engines.docker_engine import WAIT, dockerd
from tests.engines.engine_node import EngineNode
from tests.engines.podman_user import IMAGE as PODMAN_IMAGE
from tests.engines.test_names import DOCKER, PODMAN

PAGES = ("docs/start/debug.md", "docs/how-to/live.md")
EXAMPLE = re.compile(r"^(?:\$ )?gpuhook ([a-z ]+ (?:trainer|notebook)\b[^#\n]*)", re.MULTILINE)


def examples() -> list[str]:
    """Return the commands on `trainer`, which has a GPU, and on `notebook`, which has none."""
    texts = [(CHECKOUT / page).read_text(encoding="utf-8") for page in PAGES]
    return list(dict.fromkeys(found.strip() for text in texts for found in EXAMPLE.findall(text)))


@pytest.fixture(params=["Docker", "podman"])
def engine(
    request: pytest.FixtureRequest, node: EngineNode, docker_image: str, podman_image: str
) -> Iterator[str]:
    """Run both containers by an engine, and return its name."""
    assert podman_image == PODMAN_IMAGE
    run, image = (DOCKER, docker_image) if request.param == "Docker" else (PODMAN, podman_image)
    with dockerd(node):
        node.check(*run, "trainer", image, *WAIT)
        node.check(*run, "notebook", image, *WAIT)
        node.check("gpuhook", "attach", "trainer", "--device", "0")
        yield request.param
        node.check(run[0], "rm", "--force", "trainer", "notebook")


def test_documented_commands(node: EngineNode, engine: str, covers: Callable[..., None]) -> None:
    """Each command finds the container by its name, and succeeds.

    The node has cgroup v1, where the driver cannot limit memory.
    """
    commands = examples()
    assert {words.split()[0] for words in commands} >= {"attach", "detach", "inspect", "limits"}
    for words in commands:
        done = node.run("gpuhook", *shlex.split(words))
        if words.startswith("limits "):
            assert "GH1312: this node has cgroup v1" in done.stderr
        else:
            assert done.rc == 0, (words, done)
    covers(engine, node.version(engine.lower(), "--version"), "documented commands by name")
