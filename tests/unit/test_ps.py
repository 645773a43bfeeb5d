# SPDX-License-Identifier: Apache-2.0
"""`gpuhook ps`: who holds what, for people and for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.container import ledger
from gpuhook.programs.cli import main

UUIDS = [f"GPU-{n}aaaaaaa-0000-0000-0000-00000000000{n}" for n in range(2)]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the command a state directory of its own."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    return tmp_path


def ps(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ps", *arguments], prog_name="gpuhook")


def container(place: Path, identity: str, **entry: Any) -> None:
    """Enter a container whose runtime has its state."""
    (place / "runc" / identity).mkdir(parents=True)
    ledger.record(str(place / "runc"), identity, {"pid": 0, "started": None, **entry})


def holding(gpu: int, replica: int | None = None) -> dict[str, Any]:
    replicas = [] if replica is None else [f"{UUIDS[gpu]}::{replica}"]
    return {
        "devices": [f"nvidia.com/gpu={UUIDS[gpu]}"],
        "nodes": [f"/dev/nvidia{gpu}", "/dev/nvidiactl"],
        "replicas": replicas,
        "requested": replicas or [UUIDS[gpu]],
        "source": "NVIDIA_VISIBLE_DEVICES",
        "route": "wrapper",
        "runtime": "/usr/bin/runc",
        "bundle": "/b",
    }


def listed() -> list[dict[str, Any]]:
    document = json.loads(ps("-o", "json").stdout)
    assert document["schema"] == "gpuhook/ps/v1"
    found: list[dict[str, Any]] = document["containers"]
    return found


def test_nobody() -> None:
    """Where nobody holds a GPU, a line on standard error says so, and the data is empty."""
    shown = ps()
    assert shown.exit_code == 0
    assert "no container holds a GPU" in shown.stderr
    assert len(shown.stdout.splitlines()) == 1
    assert listed() == []
    assert ps("--no-headers").stdout == ""


def test_two_containers_on_one_gpu(place: Path) -> None:
    """Both are listed, oldest first, each with its replica, on the same GPU."""
    container(place, "one", pod="train-0", namespace="ml", **holding(0, 0))
    container(place, "two", **holding(0, 1))
    found = listed()
    assert [(c["id"], c["pod"], c["namespace"]) for c in found] == [
        ("one", "train-0", "ml"),
        ("two", None, None),
    ]
    assert [c["replicas"] for c in found] == [[f"{UUIDS[0]}::0"], [f"{UUIDS[0]}::1"]]
    assert [c["gpus"] for c in found] == [[UUIDS[0]], [UUIDS[0]]]
    header, first, second = ps().stdout.splitlines()
    assert header.split() == ["CONTAINER", "POD", "NAMESPACE", "GPUS", "REPLICAS", "ROUTE", "SINCE"]
    assert first.split()[:3] == ["one", "train-0", "ml"]
    assert second.split()[:3] == ["two", "-", "-"]
    assert first.endswith(" ago")
    bare = ps("--no-headers").stdout.splitlines()
    assert [line.split() for line in bare] == [first.split(), second.split()]


def test_gpus_are_named_by_their_nodes(place: Path) -> None:
    """With an inventory a container's nodes say which GPUs it has, whatever it called them."""
    gpus = [{"minor": n, "uuid": uuid} for n, uuid in enumerate(UUIDS)]
    node = place / "state/node.json"
    node.parent.mkdir()
    node.write_text(json.dumps({"gpus": gpus}))
    node.chmod(0o644)
    entry = {**holding(0), "devices": ["nvidia.com/gpu=all"]}
    entry["nodes"] = ["/dev/nvidia0", "/dev/nvidia1", "/dev/nvidia-uvm"]
    container(place, "all", **entry)
    assert listed()[0]["gpus"] == UUIDS
    node.write_text("no json")
    assert listed()[0]["gpus"] == ["all"]


def test_what_is_gone_is_not_listed(place: Path) -> None:
    """An entry goes with the runtime's state of its container."""
    container(place, "one", **holding(0))
    os.rmdir(place / "runc/one")
    assert listed() == []


def test_words_of_a_container_command_no_terminal(place: Path) -> None:
    """A pod's name or a replica with control characters is shown, not obeyed."""
    entry = {**holding(0), "replicas": ["\x1b]0;owned\x07\n::1"], "pod": "a\x1b[31mb\r"}
    container(place, "one", **entry)
    lines = ps().stdout.splitlines()
    assert len(lines) == 2
    assert all(line.isprintable() for line in lines)
    assert "a\\x1b[31mb\\r" in lines[1]
    assert listed()[0]["pod"] == entry["pod"]
