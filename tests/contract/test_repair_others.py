# SPDX-License-Identifier: Apache-2.0
"""Repair of containers whose GPUs NVIDIA's own hook injected: only the container shows them."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

from tests.contract.device_side import evaluate
from tests.contract.installation import Installation, asks
from tests.contract.live import Live, prestart, sleeping, started
from tests.contract.runtimes import BOTH
from tests.contract.views import questions


def forgotten(live: Live) -> None:
    """Remove the ledger's entries: the node is then as if another hook had injected the GPUs."""
    shutil.rmtree(live.installation.state / "containers")


def denied(live: Live, *nodes: str) -> None:
    """Deny these nodes, as a daemon-reload does; the nodes remain."""
    for path in nodes:
        number = Path(f"/proc/{live.pid}/root{path}").stat().st_rdev
        line = f"c {os.major(number)}:{os.minor(number)} rw"
        evaluate(live.container, f"rules.drop(allow('{line}'))")


@BOTH
def test_repair_by_request_and_nodes(
    engine: str, cgroup: str, apart: Installation, tmp_path: Path
) -> None:
    """The GPU that the container requests and has a node of is allowed again, and no other."""
    made = sleeping(tmp_path, env=asks("2"), hooks=prestart(apart))
    with started(made, apart, engine, cgroup) as live:
        forgotten(live)
        assert live.report("repair")["steps"] == []
        denied(live, apart.device(2), "/dev/nvidiactl")
        tries = questions(tries=[apart.number(2), apart.number(3)])
        assert live.view(tries).tries == {apart.number(2): "EPERM", apart.number(3): "EPERM"}
        findings = json.loads(live.gpuhook("inspect", "-o", "json").stdout)["findings"]
        assert [one["code"] for one in findings] == ["GH1744"]
        assert len(live.report("repair")["steps"]) == 2
        assert live.view(tries).tries == {apart.number(2): "ENXIO", apart.number(3): "EPERM"}


def test_repair_gives_no_gpu_for_a_self_made_node(apart: Installation, tmp_path: Path) -> None:
    """The container requests all GPUs, and made the node itself."""
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
