# SPDX-License-Identifier: Apache-2.0
"""A node with containers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.containers.stores import containerd_store, docker_store, libpod
from gpuhook.containers.warm import state_roots
from tests.unit.containers.state_node import Node


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """Give a node with its own ledger and without the machine's containers."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setattr(state_roots, "PLACES", ())
    monkeypatch.setattr(docker_store, "CONFIG", str(tmp_path / "none.json"))
    monkeypatch.setattr(docker_store, "SNAP_CONFIG", str(tmp_path / "none.json"))
    for name in ("ROOT", "SNAP_ROOT"):
        monkeypatch.setattr(docker_store, name, str(tmp_path / "docker"))
    monkeypatch.setattr(libpod, "STORAGE", str(tmp_path / "storage"))
    monkeypatch.setattr(containerd_store, "ROOT", str(tmp_path / "containerd"))
    made = Node(tmp_path)
    for name in made.roots:
        os.makedirs(name)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
