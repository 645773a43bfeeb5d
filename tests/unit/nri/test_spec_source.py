# SPDX-License-Identifier: Apache-2.0
"""The devices that the NRI plugin describes at its start."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuhook.entry import cold_command
from gpuhook.host.hot.engine_log import EngineLog
from gpuhook.host.hot.settings import Settings
from gpuhook.nri.spec_source import NodeSpecs
from gpuhook.vendors.amd.hot import amd_sysfs, amd_token
from tests.simulated import amd_tree


def test_driver_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KFD's files are read with a limit: this thread would never end, nor would the process."""
    tree = amd_tree.build(tmp_path, "mi300x8")
    monkeypatch.setenv("GPUHOOK_HOST_ROOT", str(tree.root))
    monkeypatch.setattr(amd_token, "SECONDS", 0.2)
    monkeypatch.setattr(amd_sysfs, "has_kfd_gpu", lambda _root: time.sleep(600))
    chosen = Settings()
    chosen.spec_dirs = [str(tmp_path)]
    specs = NodeSpecs(cold_command.Compiler("/nonexistent"))
    assert specs.prime(chosen, EngineLog("test", "")).startswith(
        "GH2561: the amdgpu driver did not"
    )
