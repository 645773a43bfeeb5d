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
from tests.engines.booted_node import BootedNode
from tests.engines.documented_node import documented_node, run_page

ENGINES = {"Docker": "docker", "podman": "podman"}
ROW = "command lines of the documentation"
# Pages whose lines need containerd 2.
NEWER = {"docs/how-to/containerd.md": "forky"}
PAGES = lines_of_scenario("node")


@pytest.fixture(scope="module")
def workstation(request: pytest.FixtureRequest) -> Iterator[BootedNode]:
    """Yield a booted node of a release."""
    if os.geteuid() != 0:
        pytest.skip("systemd-nspawn needs root")
    with documented_node(request.param, Path(mkdtemp(prefix="booted-", dir=cache()))) as node:
        yield node


@pytest.mark.parametrize(
    ("workstation", "page"),
    # One release after the other: pytest does not sort these.
    sorted(((NEWER.get(page, "trixie"), page) for page in PAGES), reverse=True),
    indirect=["workstation"],
)
def test_page(workstation: BootedNode, page: str, covers: Callable[..., None]) -> None:
    run_page(workstation, page, PAGES[page])
    for engine, program in ENGINES.items():
        if any(line.words.startswith(f"{program} ") for line in PAGES[page]):
            covers(engine, workstation.version(program, "--version"), ROW)
