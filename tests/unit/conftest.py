# SPDX-License-Identifier: Apache-2.0
"""Fixtures of several unit tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules
from gpuhook.apply.live.hotplug_steps import Live
from gpuhook.apply.live.live_injection import InjectedItems
from gpuhook.containers.warm.process_handle import Process


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    """Give a container whose root is a directory with /dev."""
    (tmp_path / "dev").mkdir()
    with (
        Process(os.getpid()) as process,
        Live(process, str(tmp_path), DeviceRules(None, None), InjectedItems()) as made,
    ):
        yield made
