# SPDX-License-Identifier: Apache-2.0
"""The usage of NVIDIA's devices for the services of the device plugin, with a simulated NVML."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.nvidia_vendor import NvidiaVendor
from gpuhook.vendors.nvidia.nvml import gpu_usage
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.nvidia.plugin.nvidia_part import NvidiaPart
from gpuhook.vendors.plugin_place import Places, PluginPlace
from gpuhook.vendors.usage_device import ProcessOnDevice, SampleTarget
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode, make_node

VENDOR = NvidiaVendor()
MIB = 1 << 20


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4", real_nodes=False)


def part_of(node: SimulatedNode) -> NvidiaPart:
    driver = Places(node.driver_root, node.dev_root, node.driver_root, node.dev_root)
    return nvidia_part.read(PluginPlace(node.host_root, node.dev_root, driver))


def busy(node: SimulatedNode) -> str:
    """Let a process compute and draw on the GPU; return the GPU's UUID."""
    uuid = str(node.node.gpus[0].uuid)
    both = (f"process {kind} 42 {5 * MIB}" for kind in ("compute", "graphics"))
    stub_events.say(node, uuid, f"used {5 * MIB}", *both)
    return uuid


def test_usage_of_a_gpu(node: SimulatedNode) -> None:
    part, uuid = part_of(node), busy(node)
    (device,) = VENDOR.usage(part, node.host_root)
    assert (device.uuid, device.used, device.lost) == (uuid, 5 * MIB, "")
    assert device.total
    assert set(device.processes or ()) == {ProcessOnDevice(42, 5 * MIB)}
    free = VENDOR.free_memory(part, uuid, node.host_root)
    assert free
    assert free <= device.total - 5 * MIB


def test_error_of_a_device_leaves_its_usage_unknown(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    part, _ = part_of(node), busy(node)

    def fails(_: str) -> None:
        raise RuntimeError("a bug of the binding")

    monkeypatch.setattr(gpu_usage, "processes", fails)
    (device,) = VENDOR.usage(part, node.host_root)
    assert (device.used, device.processes, device.percent) == (5 * MIB, None, None)


def test_processes_of_a_device(node: SimulatedNode) -> None:
    part, uuid = part_of(node), busy(node)
    reader = VENDOR.process_reader(part, node.host_root)
    assert reader is not None
    with reader.opened():
        assert reader.memory(SampleTarget(uuid, uuid)) == {42: 5 * MIB}
    assert reader.memory(SampleTarget(uuid, uuid)) == {42: 5 * MIB}
    assert reader.memory(SampleTarget("0000:05:00.0", "0000:05:00.0")) is None


def test_driver_that_does_not_answer(node: SimulatedNode) -> None:
    part, uuid = part_of(node), busy(node)
    stub_events.take_away(node)
    with pytest.raises(GpuhookError):
        VENDOR.usage(part, node.host_root)
    assert VENDOR.free_memory(part, uuid, node.host_root) is None
    missing = part_of(node)
    assert missing.error is not None
    assert VENDOR.process_reader(missing, node.host_root) is None
    assert VENDOR.free_memory(missing, uuid, node.host_root) is None
