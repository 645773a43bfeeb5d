# SPDX-License-Identifier: Apache-2.0
"""Many containers are found without reading a file of the node for each of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.containers.state_search import ContainerSearch
from gpuhook.host.hot import procfs
from gpuhook.kernel import cgroup


def test_mounts_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with 500 pods has thousands of mounts: they are read once, not for each."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    started = procfs.start_time(os.getpid())
    for number in range(20):
        place = tmp_path / "runc" / f"c{number}"
        place.mkdir(parents=True)
        state = {
            "id": f"c{number}",
            "init_process_pid": os.getpid(),
            "init_process_start": started,
            "config": {"rootfs": "/", "labels": ["bundle=/nowhere"]},
        }
        (place / "state.json").write_text(json.dumps(state), encoding="utf-8")
    looks: list[int] = []
    real = cgroup.hierarchies

    def hierarchies() -> Any:
        looks.append(1)
        return real()

    monkeypatch.setattr(cgroup, "hierarchies", hierarchies)
    found = ContainerSearch([str(tmp_path / "runc")]).of_id(lambda name: name.startswith("c"))
    assert {one.status for one in found} == {"running"}
    assert len(found) == 20
    assert len(looks) == 1


def test_sweeps_are_rare_on_a_full_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 600 living containers, not each start reads all of their entries."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    sweeps = []
    real = ledger.living

    def living(*, is_swept: bool = False) -> list[dict[str, Any]]:
        sweeps.append(len(os.listdir(ledger.directory())))
        return real(is_swept=is_swept)

    monkeypatch.setattr(ledger, "living", living)
    process = {"pid": os.getpid(), "started": procfs.start_time(os.getpid())}
    for number in range(700):
        ledger.record("", f"c{number}", process)
    assert sweeps == [576, 640]
    gone = {"pid": 0, "started": None}
    for number in range(700, 800):
        ledger.record("", f"c{number}", gone)
        assert len(os.listdir(ledger.directory())) <= 768
