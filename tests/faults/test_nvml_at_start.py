# SPDX-License-Identifier: Apache-2.0
"""NVML hangs, fails, lies or crashes while the device plugin and the DRA driver start.

The process says what it waits for, and serves when the library answers again. A crash of the
library ends the process, whose log names the function; the next process serves.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster_api.cluster_server import Cluster
from tests.depth import cases
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, PluginProcess
from tests.kubelet.running import Run
from tests.simulated.faulty_nvml import FaultyNvml
from tests.simulated.node import SimulatedNode
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]

PATIENT = "version: v1\nflags: {failOnInitError: false}\n"
# In each Python process with this directory in its path.
IMPATIENT = """\
import gpuhook.device_plugin.health.health_service as health_service
health_service._DRIVER_TIMEOUT = 1
"""
INIT, COUNT, UUID = "nvmlInitWithFlags", "nvmlDeviceGetCount_v2", "nvmlDeviceGetUUID"
HANG = (INIT, "hang", "DriverHangs: the driver has not answered for 1 seconds")
# A function, its fault, and what the log says of it.
FAULTS = [
    HANG,
    (UUID, "hang", HANG[2]),
    (INIT, "error 999", "NVML failed: Unknown Error"),
    (COUNT, "error 999", "NVML failed: Unknown Error"),
    (COUNT, "garbage", "NVML failed: it reports 4294967295 GPUs"),
]
CRASHES = pytest.mark.parametrize("function", [INIT, COUNT, UUID])


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    """Return variables that shorten the deadline of a driver in a process."""
    place = tmp_path / "impatient"
    place.mkdir()
    (place / "sitecustomize.py").write_text(IMPATIENT, encoding="utf-8")
    return {"PYTHONPATH": f"{place}:{Path(__file__).parents[2]}"}


def wait_for_sentence(running: PluginProcess, sentence: str) -> None:
    """Wait for a line of the log: its reason and its event."""

    def lines() -> list[str]:
        return [f"{one.get('reason')}: {one.get('event')}" for one in running.log()]

    eventually(lambda: any(sentence in one for one in lines()), sentence)


def assert_crash_is_named(running: PluginProcess, function: str) -> None:
    """Assert that the process ends by the signal, and that its log has the function."""
    assert running.ended() == -signal.SIGSEGV
    texts = [one["text"] for one in running.log() if "text" in one]
    assert "Fatal Python error: Segmentation fault" in texts
    assert any(f" in {function.removesuffix('_v2')}" in one for one in texts), texts


@dataclass
class Faulty:
    """Changes the NVML of a node: the function has the fault."""

    function: str
    fault: str
    nvml: FaultyNvml | None = None

    def __call__(self, node: SimulatedNode) -> None:
        self.nvml = FaultyNvml.install(node)
        self.nvml.fail(self.function, self.fault)

    def end(self) -> None:
        """End the fault."""
        assert self.nvml is not None
        self.nvml.end()


EACH = pytest.mark.parametrize(("function", "fault", "sentence"), cases(FAULTS, [HANG]))


@EACH
def test_plugin_waits_for_the_library(
    run: Run,
    kubelet: Kubelet,
    variables: dict[str, str],
    function: str,
    fault: str,
    sentence: str,
) -> None:
    change = Faulty(function, fault)
    running = run("t4", PATIENT, change=change, **variables)
    wait_for_sentence(running, sentence)
    assert kubelet.allocatable(GPU) == 0
    change.end()
    kubelet.wait_for_devices(GPU, 1)
    kubelet.allocate(GPU, 1)
    assert running.stop() == 0


@pytest.mark.thorough
def test_plugin_with_a_library_that_counts_too_many_instances(run: Run, kubelet: Kubelet) -> None:
    change = Faulty("nvmlDeviceGetMaxMigDeviceCount", "garbage")
    run("a100-mig", "version: v1\nflags: {migStrategy: mixed}\n", change=change)
    kubelet.wait_for_devices("nvidia.com/mig-1g.5gb", 7)


@pytest.mark.thorough
def test_plugin_ends_while_the_library_hangs(run: Run, variables: dict[str, str]) -> None:
    running = run("t4", change=Faulty(INIT, "hang"), **variables)
    wait_for_sentence(running, HANG[2])
    assert running.stop() == 0


@pytest.mark.thorough
@CRASHES
def test_plugin_with_a_library_that_crashes(run: Run, kubelet: Kubelet, function: str) -> None:
    change = Faulty(function, "crash")
    running = run("t4", PATIENT, change=change)
    assert_crash_is_named(running, function)
    change.end()
    running.start()
    kubelet.wait_for_devices(GPU, 1)


@pytest.mark.thorough
@EACH
def test_dra_driver_waits_for_the_library(
    run_dra: RunDra,
    cluster: Cluster,
    variables: dict[str, str],
    function: str,
    fault: str,
    sentence: str,
) -> None:
    """No device is published until it answers."""
    change = Faulty(function, fault)
    running = run_dra("t4", change=change, **variables)
    wait_for_sentence(running, sentence)
    assert devices(cluster) == 0
    change.end()
    eventually(lambda: devices(cluster) == 1, "the device")
    assert running.stop() == 0


@pytest.mark.thorough
@CRASHES
def test_dra_driver_with_a_library_that_crashes(
    run_dra: RunDra, cluster: Cluster, function: str
) -> None:
    change = Faulty(function, "crash")
    running = run_dra("t4", change=change)
    assert_crash_is_named(running, function)
    change.end()
    running.start()
    eventually(lambda: devices(cluster) == 1, "the device")


def devices(cluster: Cluster) -> int:
    """Return the number of published devices."""
    return sum(len(one["spec"].get("devices", ())) for one in cluster.store.slices())
