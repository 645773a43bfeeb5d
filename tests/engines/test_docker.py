# SPDX-License-Identifier: Apache-2.0
"""Docker of each release: gpuhook-runtime, CDI and --gpus, and `gpuhook configure docker`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.contract.views import questions, view
from tests.engines.engine_node import EngineNode

IMAGE = "probe:1"
FLAGS = ("--iptables=false", "--ip6tables=false", "--bridge=none")
RUN = ("docker", "run", "--rm", "--network=none")


@contextmanager
def dockerd(node: EngineNode, *flags: str) -> Iterator[None]:
    """Run dockerd on the node, with the files that the node has."""
    command = ["dockerd", *FLAGS, *flags]
    with node.daemon(command, lambda: node.run("docker", "version").rc == 0):
        yield


@pytest.fixture(scope="module")
def image(node: EngineNode) -> str:
    """Import the image of a Debian with the probe."""
    root = node.image_root("debian", "image")
    with dockerd(node):
        node.check("sh", "-c", f"tar -C {root} -c . | docker import - {IMAGE}")
    return IMAGE


@pytest.mark.parametrize("low_level", ["runc", "crun"])
def test_configured_runtime(
    node: EngineNode, image: str, low_level: str, covers: Callable[..., None]
) -> None:
    """`configure docker`, a restart, and `--runtime nvidia` give GPU 2; undo takes it back."""
    node.check("gpuhook", "configure", "docker")
    with dockerd(node):
        words = ["--runtime", "nvidia", "--env", "NVIDIA_VISIBLE_DEVICES=2", image, "/probe"]
        seen = view(node.check(*RUN, *words, *questions()))
    node.check("gpuhook", "configure", "undo", "docker")
    assert [path for path in seen.gpus() if path[11:].isdecimal()] == [node.device(2)]
    covers("Docker", node.version("docker", "--version"), "--runtime nvidia", low_level)
