# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the fault tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubelet.running import kubelet, run
from tests.simulated.node import SimulatedNode, make_node

__all__ = ["kubelet", "run"]


@pytest.fixture
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an empty state directory and no settings."""
    monkeypatch.setenv("GPUHOOK_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("GPUHOOK_CONFIG", str(tmp_path / "no-settings.yaml"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> SimulatedNode:
    return make_node(tmp_path_factory.mktemp("t4"), "t4")
