# SPDX-License-Identifier: Apache-2.0
"""Setting the compute mode of a GPU, in a real library."""

from __future__ import annotations

from pathlib import Path

import pynvml
import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import nvml
from gpuhook.vendors.nvidia.compute_mode import set_compute_mode
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4", real_nodes=False)


def test_mode_is_set(node: SimulatedNode) -> None:
    uuid = str(node.node.gpus[0].uuid)
    with nvml.opened(node.nvml_library):
        set_compute_mode((node.nvml_library, None), uuid, "exclusive-process")
        gpu = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        assert pynvml.nvmlDeviceGetComputeMode(gpu) == pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
        set_compute_mode((node.nvml_library, None), uuid, "default")
        assert pynvml.nvmlDeviceGetComputeMode(gpu) == pynvml.NVML_COMPUTEMODE_DEFAULT


def test_refusal_is_told(node: SimulatedNode) -> None:
    uuid = str(node.node.gpus[0].uuid)
    stub_events.say(node, uuid, "fail mode 4")
    with pytest.raises(GpuhookError) as refused:
        set_compute_mode((node.nvml_library, None), uuid, "default")
    assert refused.value.code == "GH1877"
