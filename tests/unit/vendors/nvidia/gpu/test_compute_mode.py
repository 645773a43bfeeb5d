# SPDX-License-Identifier: Apache-2.0
"""Reading and setting the compute mode of a GPU, in a real library."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.gpu.compute_mode import compute_mode, set_compute_mode
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4", real_nodes=False)


def test_mode_is_set(node: SimulatedNode) -> None:
    uuid = str(node.node.gpus[0].uuid)
    with nvml_inventory.opened(node.nvml_library):
        set_compute_mode((node.nvml_library, None), uuid, "exclusive-process")
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        assert pynvml.nvmlDeviceGetComputeMode(gpu) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        set_compute_mode((node.nvml_library, None), uuid, "default")
        assert pynvml.nvmlDeviceGetComputeMode(gpu) == pynvml.NVML_COMPUTEMODE_DEFAULT


def test_refusal_is_a_fault(node: SimulatedNode) -> None:
    uuid = str(node.node.gpus[0].uuid)
    stub_events.say(node, uuid, "fail compute_mode 4")
    with pytest.raises(GpuhookError) as refused:
        set_compute_mode((node.nvml_library, None), uuid, "default")
    assert refused.value.code == "GH1877"


def test_mode_is_read(node: SimulatedNode) -> None:
    uuid, library = str(node.node.gpus[0].uuid), (node.nvml_library, None)
    for number, name in ((0, "default"), (2, "prohibited"), (3, "exclusive-process")):
        stub_events.say(node, uuid, f"compute_mode {number}")
        assert compute_mode(library, uuid) == name


def test_unknown_mode_is_a_fault(node: SimulatedNode) -> None:
    """For a missing GPU, and for an unknown number."""
    uuid, library = str(node.node.gpus[0].uuid), (node.nvml_library, None)
    stub_events.say(node, uuid, "compute_mode 7")
    for name in (uuid, "GPU-00000000-0000-0000-0000-000000000000"):
        with pytest.raises(GpuhookError) as untold:
            compute_mode(library, name)
        assert untold.value.code == "GH1265"
