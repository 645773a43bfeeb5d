# SPDX-License-Identifier: Apache-2.0
"""The command lines of the documentation that need a node, in the order of their page."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.contract.build_cache import cache
from tests.documented.claims import lines_of_scenario
from tests.engines.amd_workstation import amd_workstation
from tests.engines.booted_node import BootedNode
from tests.engines.documented_node import documented_node, run_page

ENGINES = {"Docker": "docker", "podman": "podman"}
ROW = "command lines of the documentation"
PAGES = lines_of_scenario("node")
AMD_PAGES = lines_of_scenario("AMD node")
NEWER = ("docs/how-to/containerd.md",)  # for containerd 2


def booted_node(request: pytest.FixtureRequest) -> Iterator[BootedNode]:
    """Yield a booted node of the release."""
    if os.geteuid() != 0:
        pytest.skip("systemd-nspawn needs root")
    with documented_node(request.param, Path(mkdtemp(prefix="booted-", dir=cache()))) as node:
        yield node


@pytest.fixture
def amd_node() -> Iterator[BootedNode]:
    """Yield a booted node with eight AMD GPUs."""
    if os.geteuid() != 0:
        pytest.skip("systemd-nspawn needs root")
    place = Path(mkdtemp(prefix="booted-", dir=cache()))
    with amd_workstation("trixie", place, "mi300x8") as node:
        yield node


workstation = pytest.fixture(booted_node, scope="module", params=["trixie"])
newer_workstation = pytest.fixture(booted_node, scope="module", params=["forky"])


@pytest.mark.parametrize("page", sorted(set(PAGES).difference(NEWER)))
def test_page(workstation: BootedNode, page: str, covers: Callable[..., None]) -> None:
    run_page(workstation, page, PAGES[page])
    for engine, program in ENGINES.items():
        if any(line.words.startswith(f"{program} ") for line in PAGES[page]):
            covers(engine, workstation.version(program, "--version"), ROW)


@pytest.mark.parametrize("page", NEWER)
def test_page_of_newer_engines(newer_workstation: BootedNode, page: str) -> None:
    run_page(newer_workstation, page, PAGES[page])


@pytest.mark.parametrize("page", AMD_PAGES)
def test_page_of_amd_gpus(amd_node: BootedNode, page: str) -> None:
    run_page(amd_node, page, AMD_PAGES[page])
