# SPDX-License-Identifier: Apache-2.0
"""The time slice of a GPU through nvidia-smi, with a stand-in that has the real one's output."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.gpu import compute_policy
from gpuhook.vendors.nvidia.gpu.compute_policy import Smi
from gpuhook.vendors.nvidia.warm.nvml_constants import TIME_SLICES
from tests.simulated import time_slices
from tests.simulated.node import SimulatedNode, make_node
from tests.simulated.time_slices import TimeSlices


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "h100x8", real_nodes=False)


@pytest.fixture
def driver(node: SimulatedNode) -> TimeSlices:
    return time_slices.install(node)


@pytest.fixture
def smi(node: SimulatedNode, driver: TimeSlices) -> Smi:
    return Smi(str(driver.program), node.nvml_library)


def _uuid(node: SimulatedNode, index: int) -> str:
    return str(node.node.gpus[index].uuid)


@pytest.mark.parametrize("value", TIME_SLICES)
def test_time_slice_is_set_and_read(
    value: str, node: SimulatedNode, driver: TimeSlices, smi: Smi
) -> None:
    compute_policy.set_time_slice(smi, _uuid(node, 2), value)
    assert compute_policy.time_slice(smi, _uuid(node, 2)) == value
    assert driver.now() == ["default", "default", value, *["default"] * 5]


def test_all_time_slices_are_read_at_once_with_the_drivers_library(
    node: SimulatedNode, driver: TimeSlices, smi: Smi
) -> None:
    driver.put(1, "long")
    found = compute_policy.time_slices(smi)
    assert found == {index: "long" if index == 1 else "default" for index in range(8)}
    assert driver.calls() == [f"compute-policy --list LD_PRELOAD={node.nvml_library}"]


def test_preloaded_libraries_are_kept(
    driver: TimeSlices, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_PRELOAD", smi.library)
    compute_policy.time_slices(Smi(str(driver.program)))
    assert driver.calls()[0].endswith(f"LD_PRELOAD={smi.library}")


@pytest.mark.parametrize(
    ("mood", "code"), [("old", "GH1261"), ("forbidden", "GH1263"), ("broken", "GH1264")]
)
def test_refusals_have_different_reasons(
    mood: str, code: str, node: SimulatedNode, driver: TimeSlices, smi: Smi
) -> None:
    driver.mood(mood)
    with pytest.raises(GpuhookError) as refused:
        compute_policy.set_time_slice(smi, _uuid(node, 0), "short")
    assert refused.value.code == code


def test_gpu_without_a_time_slice_is_a_fault(
    node: SimulatedNode, driver: TimeSlices, smi: Smi
) -> None:
    driver.put(0, "-")
    for ask in (
        compute_policy.time_slice,
        lambda s, u: compute_policy.set_time_slice(s, u, "long"),
    ):
        with pytest.raises(GpuhookError) as refused:
            ask(smi, _uuid(node, 0))
        assert refused.value.code == "GH1262"
        assert "Not Supported" in refused.value.message
    with pytest.raises(GpuhookError):
        compute_policy.time_slices(smi)


def test_missing_program_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(GpuhookError) as refused:
        compute_policy.time_slice(Smi(str(tmp_path / "nvidia-smi")), "GPU-0")
    assert refused.value.code == "GH1260"


def test_hanging_program_is_killed(
    node: SimulatedNode, driver: TimeSlices, smi: Smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compute_policy, "_SECONDS", 0.2)
    driver.mood("hanging")
    with pytest.raises(GpuhookError) as refused:
        compute_policy.time_slice(smi, _uuid(node, 0))
    assert refused.value.code == "GH1264"


def test_list_without_the_gpu_is_a_fault(tmp_path: Path) -> None:
    silent = tmp_path / "nvidia-smi"
    silent.write_text("#!/bin/sh\necho No devices were found\n")
    silent.chmod(0o755)
    with pytest.raises(GpuhookError) as refused:
        compute_policy.time_slice(Smi(str(silent)), "GPU-0")
    assert refused.value.code == "GH1264"
    assert "No devices were found" in refused.value.message
