# SPDX-License-Identifier: Apache-2.0
"""What sends the plugin signals by name finds it: NVIDIA's config-manager, pkill, killall."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, TIME_SLICING, PluginProcess, plugin
from tests.simulated.node import make_node
from tests.waiting import eventually

NAME = "nvidia-device-plugin"


@pytest.fixture
def running(tmp_path: Path, plugins_path: Path) -> Iterator[PluginProcess]:
    """Give a plugin that is called NAME."""
    node = make_node(tmp_path / "node", "t4")
    options = ("--process-name", NAME)
    with (
        Kubelet(plugins_path) as kubelet,
        plugin(tmp_path / "plugin", node, kubelet, TIME_SLICING, options=options) as made,
    ):
        kubelet.wait_for_devices(GPU, 4)
        yield made


def named(name: str) -> set[int]:
    """Return the processes with this first argument, as NVIDIA's config-manager looks for them."""
    found = set()
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # it has ended
            if Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[0] == name.encode():
                found.add(int(entry))
    return found


def test_hangup_by_name_reloads(running: PluginProcess) -> None:
    assert running.pid in named(NAME)
    assert Path(f"/proc/{running.pid}/comm").read_text() == f"{NAME[:15]}\n"
    before = reloads(running)
    running.signal(signal.SIGHUP)
    eventually(lambda: reloads(running) > before, "a reload")
    assert running.stop() == 0


def reloads(running: PluginProcess) -> float:
    """Return how often the configuration was read again."""
    lines = running.metrics().splitlines()
    told = [line for line in lines if line.startswith("gpuhook_config_reloads_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in told)
