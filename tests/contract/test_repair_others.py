# SPDX-License-Identifier: Apache-2.0
"""Containers to which NVIDIA's own hook gave GPUs, which leaves no trace but in the container."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

from tests.contract.device_side import told
from tests.contract.installation import Installation, asks
from tests.contract.live import Live, prestart, sleeping, started
from tests.contract.runtimes import BOTH
from tests.contract.views import questions


def forgotten(live: Live) -> None:
    """Make the ledger forget the container: so a node looks where another hook was at work."""
    shutil.rmtree(live.installation.state / "containers")


def denied(live: Live, *nodes: str) -> None:
    """Take back what the hook allowed of these nodes, as a daemon-reload does; they stay."""
    for path in nodes:
        number = Path(f"/proc/{live.pid}/root{path}").stat().st_rdev
        line = f"c {os.major(number)}:{os.minor(number)} rw"
        told(live.container, f"rules.drop(allow('{line}'))")


@BOTH
def test_what_it_shows_comes_back(
    engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The GPU that it asks for and has is allowed again, and no other."""
    made = sleeping(tmp_path, env=asks("2"), hooks=prestart(apart))
    with started(made, apart, engine, cgroup) as live:
        forgotten(live)
        assert live.report("repair")["steps"] == []
        denied(live, apart.device(2), "/dev/nvidiactl")
        asked = questions(tries=[apart.number(2), apart.number(3)])
        assert live.view(asked).tries == {apart.number(2): "EPERM", apart.number(3): "EPERM"}
        found = json.loads(live.gpuhook("inspect", "-o", "json").stdout)["findings"]
        assert [one["code"] for one in found] == ["GH1744"]
        assert len(live.report("repair")["steps"]) == 2
        assert live.view(asked).tries == {apart.number(2): "ENXIO", apart.number(3): "EPERM"}


def test_who_was_never_given_one(apart: Installation, tmp_path: Path) -> None:
    """A container that asks, and makes the nodes itself, gets nothing by a repair."""
    made = sleeping(tmp_path, env=asks("all"))
    with started(made, apart) as live:
        device = os.makedev(195, apart.gpu(2).minor or 0)
        node = Path(f"/proc/{live.pid}/root{apart.device(2)}")
        os.mknod(node, stat.S_IFCHR | 0o666, device)
        before = live.rules()
        assert live.report("repair")["steps"] == []
        done = live.gpuhook("repair", name="--all")
        assert "device rule" not in done.stdout
        assert live.rules() == before
