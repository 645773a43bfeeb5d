# SPDX-License-Identifier: Apache-2.0
"""Programs that signal the plugin by its name find it: NVIDIA's config-manager, pkill, killall."""

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
    """Yield a plugin whose process name is NAME."""
    node = make_node(tmp_path / "node", "t4")
    options = ("--process-name", NAME)
    with (
        Kubelet(plugins_path) as kubelet,
        plugin(tmp_path / "plugin", node, kubelet, TIME_SLICING, options=options) as made,
    ):
        kubelet.wait_for_devices(GPU, 4)
        yield made


def pids_of(name: str) -> set[int]:
    """Return the processes with this first argument, as NVIDIA's config-manager looks for them."""
    pids = set()
    for entry in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):  # the process has exited
            if Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[0] == name.encode():
                pids.add(int(entry))
    return pids


def test_sighup_by_process_name_reloads(running: PluginProcess) -> None:
    assert running.pid in pids_of(NAME)
    assert Path(f"/proc/{running.pid}/comm").read_text() == f"{NAME[:15]}\n"
    before = count_reloads(running)
    running.signal(signal.SIGHUP)
    eventually(lambda: count_reloads(running) > before, "a reload")
    assert running.stop() == 0


def count_reloads(running: PluginProcess) -> float:
    """Return how often the plugin read its configuration again."""
    lines = running.metrics().splitlines()
    values = [line for line in lines if line.startswith("gpuhook_config_reloads_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in values)
