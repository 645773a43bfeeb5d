# SPDX-License-Identifier: Apache-2.0
"""Time slices and compute modes by the device plugin as a process, with stubs of the driver."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, TIME_SLICING, PluginProcess, plugin
from tests.simulated import time_slices
from tests.simulated.node import SimulatedNode, make_node
from tests.simulated.time_slices import TimeSlices
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes device nodes")

SHORT = TIME_SLICING + "      timeSlice: short\n"
LONG = TIME_SLICING + "      timeSlice: long\n"
TOGETHER = TIME_SLICING + "      computeMode: default\n"
EXCLUSIVE = 3  # some sites set it for batch jobs: a second container gets no context


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4")


@pytest.fixture
def driver(node: SimulatedNode) -> TimeSlices:
    return time_slices.install(node)


@pytest.fixture
def run(
    tmp_path: Path, node: SimulatedNode, driver: TimeSlices, kubelet: Kubelet
) -> Iterator[Callable[[str], PluginProcess]]:
    """Return a function: configuration -> a running plugin on the node with this driver."""
    assert driver.now() == ["default"]
    with ExitStack() as stack:

        def start(text: str) -> PluginProcess:
            made = plugin(tmp_path / "plugin", node, kubelet, text)
            return stack.enter_context(made)

        yield start


def _mode(node: SimulatedNode) -> Path:
    """Return the file with the compute mode that was set last."""
    return Path(node.nvml_library).with_name(f"nvml-stub.mode.{node.node.gpus[0].uuid}")


def test_time_slice_is_set_at_the_start_and_restored_at_the_end(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices
) -> None:
    running = run(SHORT)
    kubelet.wait_for_devices(GPU, 4)
    assert driver.now() == ["short"]
    assert running.wait_for_log(reason="PolicySet")["event"].endswith("is short, it was default")
    assert running.stop() == 0
    assert driver.now() == ["default"]
    assert not (running.state / "policies.json").exists()


def test_reload_changes_and_restores_the_time_slice(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices
) -> None:
    running = run(SHORT)
    kubelet.wait_for_devices(GPU, 4)
    running.configure(LONG)
    eventually(lambda: driver.now() == ["long"], "a long time slice")
    running.configure(TIME_SLICING)
    eventually(lambda: driver.now() == ["default"], "the time slice of before")
    calls = len(driver.calls())
    assert running.stop() == 0
    assert len(driver.calls()) == calls


def test_next_plugin_restores_settings_of_a_killed_one(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices, node: SimulatedNode
) -> None:
    _mode(node).write_text(f"{EXCLUSIVE}\n")
    running = run(SHORT + TOGETHER.removeprefix(TIME_SLICING))
    kubelet.wait_for_devices(GPU, 4)
    assert (driver.now(), int(_mode(node).read_text())) == (["short"], 0)
    running.stop(signal.SIGKILL)
    assert (running.state / "policies.json").exists()
    running.configure(TIME_SLICING)
    running.start()
    eventually(lambda: not (running.state / "policies.json").exists(), "the settings of before")
    assert (driver.now(), int(_mode(node).read_text())) == (["default"], EXCLUSIVE)


def test_compute_mode_is_restored_at_the_end(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, node: SimulatedNode
) -> None:
    _mode(node).write_text(f"{EXCLUSIVE}\n")
    running = run(TOGETHER)
    kubelet.wait_for_devices(GPU, 4)
    assert int(_mode(node).read_text()) == 0
    assert running.stop() == 0
    assert int(_mode(node).read_text()) == EXCLUSIVE


def test_restarted_plugin_restores_the_first_value(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices
) -> None:
    driver.put(0, "medium")
    running = run(LONG)
    kubelet.wait_for_devices(GPU, 4)
    running.stop(signal.SIGKILL)
    running.start()
    running.wait_for_log(event="offered", healthy=4)
    eventually(lambda: len(driver.calls("--list")) > 1, "another look")
    assert driver.now() == ["long"]
    assert running.stop() == 0
    assert driver.now() == ["medium"]


def test_resource_is_offered_with_an_old_driver(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices
) -> None:
    driver.mood("old")
    running = run(SHORT)
    kubelet.wait_for_devices(GPU, 4)
    line = running.wait_for_log(reason="PolicyNotSet")
    assert line["code"] == "GH1261"
    assert running.stop() == 0
    assert driver.now() == ["default"]


def test_plugin_without_a_time_slice_runs_no_nvidia_smi(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices
) -> None:
    running = run(TIME_SLICING)
    kubelet.wait_for_devices(GPU, 4)
    assert running.stop() == 0
    assert driver.calls() == []


def test_hanging_driver_does_not_delay_the_end(
    run: Callable[[str], PluginProcess], kubelet: Kubelet, driver: TimeSlices
) -> None:
    running = run(SHORT)
    kubelet.wait_for_devices(GPU, 4)
    driver.mood("hanging")
    assert running.stop() == 0
    assert (running.state / "policies.json").exists()
