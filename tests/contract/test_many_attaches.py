# SPDX-License-Identifier: Apache-2.0
"""A GPU that is attached and detached a thousand times: the container is as before."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests import growth
from tests.contract.bundles import CGROUP
from tests.contract.installation import Installation
from tests.contract.live import Live, Seen, sleeping, started
from tests.contract.runtimes import BOTH
from tests.depth import depth
from tests.figures import Figures

# Of other processes of this machine, which load programs too.
OTHERS = 64


@pytest.mark.soak
@BOTH
def test_attaches(
    engine: str,
    cgroup: str,
    apart: Installation,
    tmp_path: Path,
    figures: Figures,
    machine: Callable[[], None],
) -> None:
    """Its files, mounts, rules and entry, and the node, do not grow with the number of changes."""
    rounds = depth(2, 20, 500)
    with started(sleeping(tmp_path), apart, engine, cgroup) as live:

        def turn() -> None:
            live.attach("2")
            live.detach("2")
            machine()

        def counts() -> dict[str, int]:
            state = growth.Directory(apart.state)
            return {
                "files of gpuhook in /run": state.files,
                "bytes of gpuhook in /run": state.bytes,
                "mounts of the node": growth.mounts(),
                "cgroups": growth.cgroups(CGROUP),
                "BPF programs": growth.programs(),
                "descriptors of the container": len(os.listdir(f"/proc/{live.pid}/fd")),
            }

        turn()
        before, seen = counts(), _seen(live)
        for _ in range(rounds):
            turn()
        after = counts()
        assert _seen(live) == seen
    figures.record(f"attached and detached, {engine} on cgroup {cgroup}", str(rounds))
    for what, count in after.items():
        most = before[what] + (OTHERS if what in ("BPF programs", "cgroups") else 0)
        if what.startswith("bytes"):
            most += 64  # times of the entry
        figures.record(f"{what}, {engine}", f"{before[what]} to {count}", str(most))
        assert count <= most, what


def _seen(live: Live) -> Seen:
    """Return the state of the container; the ids of its programs differ."""
    seen = live.seen()
    return replace(
        seen, rules=tuple(re.sub(r"program \d+", "program", rule) for rule in seen.rules)
    )
