# SPDX-License-Identifier: Apache-2.0
"""The facts of a container that made its own /dev."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.apply.live.hotplug_steps import Live
from gpuhook.containers.warm.runtime_state import Found
from gpuhook.inspect import inspection
from gpuhook.vendors.nvidia.spec import injection_traces


@pytest.mark.parametrize("directory", injection_traces.NODE_DIRECTORIES)
def test_file_in_place_of_a_node_directory(directory: str, live: Live, tmp_path: Path) -> None:
    """It has no nodes, and is closed again."""
    place = tmp_path / directory[1:]
    if place.is_dir():
        place.rmdir()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.touch()
    assert live.root.names("/dev/none") == []  # opens the directory
    before = os.listdir("/proc/self/fd")
    assert inspection.inspect_container(live, Found("x"), {}, {})["nodes"] == []
    assert os.listdir("/proc/self/fd") == before
