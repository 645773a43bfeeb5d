# SPDX-License-Identifier: Apache-2.0
"""Device nodes below a dev root, compared with those of the kernel and NVML."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.devices import driver_nodes
from tests.simulated.node import SimulatedNode, make_node

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "h100x8")


def nodes_found(simulated: SimulatedNode, *, require: bool = True) -> driver_nodes.NodesFound:
    numbers = driver_nodes.majors(simulated.host_root)
    return driver_nodes.find(simulated.dev_root, numbers, simulated.node.gpus, require=require)


def test_control_and_gpu_nodes_are_found(simulated: SimulatedNode) -> None:
    """One node per GPU, by its minor and not by its index."""
    assert set(nodes_found(simulated).nodes) == set(simulated.node.device_nodes)
    assert nodes_found(simulated).warnings == ()


def test_majors_of_character_devices(simulated: SimulatedNode) -> None:
    """The majors are those of NVIDIA's character devices in /proc/devices."""
    assert driver_nodes.majors(simulated.host_root) == simulated.node.majors


def test_node_of_a_lost_gpu_is_not_read(tmp_path: Path) -> None:
    """Even if nodes are required."""
    simulated = make_node(tmp_path, "lost-gpu")
    paths = [device.path for device in nodes_found(simulated).nodes]
    assert "/dev/nvidia2" not in paths
    assert "/dev/nvidia3" in paths


def test_owner_and_mode_are_those_of_the_node(simulated: SimulatedNode) -> None:
    path = Path(simulated.dev_root, "dev/nvidia3")
    path.chmod(0o660)
    os.chown(path, 0, 44)
    (node,) = (device for device in nodes_found(simulated).nodes if device.path == "/dev/nvidia3")
    assert (node.mode, node.gid, node.major, node.minor) == (0o660, 44, 195, 3)
    assert node.host_path == str(path)


@pytest.mark.parametrize("name", ["nvidiactl", "nvidia3"])
def test_missing_node_is_a_fault_or_a_warning(simulated: SimulatedNode, name: str) -> None:
    """It is a fault with `require`, else a warning."""
    path = Path(simulated.dev_root, "dev", name)
    path.unlink()
    with pytest.raises(GpuhookError) as caught:
        nodes_found(simulated)
    assert caught.value.code == "GH1210"
    assert caught.value.message == f"device node {path}: no such device node"
    assert "--dev-root" in caught.value.hint
    assert str(path) in "".join(nodes_found(simulated, require=False).warnings)


def test_missing_uvm_node_is_a_warning(simulated: SimulatedNode) -> None:
    """Without /dev/nvidia-uvm only CUDA does not work."""
    Path(simulated.dev_root, "dev/nvidia-uvm").unlink()
    (warning,) = nodes_found(simulated).warnings
    assert "CUDA will not start" in warning


def test_missing_modeset_node_has_no_warning(simulated: SimulatedNode) -> None:
    """A server has no /dev/nvidia-modeset."""
    Path(simulated.dev_root, "dev/nvidia-modeset").unlink()
    assert nodes_found(simulated).warnings == ()


def test_file_in_place_of_a_node_is_a_fault(simulated: SimulatedNode) -> None:
    """A regular file with a node's name has its own fault."""
    path = Path(simulated.dev_root, "dev/nvidia0")
    path.unlink()
    path.touch()
    with pytest.raises(GpuhookError) as caught:
        nodes_found(simulated)
    assert caught.value.code == "GH1210"
    assert caught.value.message == f"device node {path}: it is not a character device"
    assert "create-device-nodes --replace" in caught.value.hint


def test_stale_major_is_a_fault(simulated: SimulatedNode) -> None:
    """A node whose major is not the module's is refused with both numbers."""
    path = Path(simulated.dev_root, "dev/nvidia-uvm")
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(234, 0))
    with pytest.raises(GpuhookError) as caught:
        nodes_found(simulated)
    assert caught.value.code == "GH1210"
    assert "has major number 234, but kernel module" in caught.value.message
    assert caught.value.message.endswith(" has 509")
    assert "create-device-nodes --replace" in caught.value.hint
    assert "/dev/nvidia-uvm" not in [d.path for d in nodes_found(simulated, require=False).nodes]


def test_earlier_name_of_the_major(simulated: SimulatedNode) -> None:
    """Drivers that register 'nvidia-frontend' are checked in the same way."""
    Path(simulated.host_root, "proc/devices").write_text(
        "Character devices:\n195 nvidia-frontend\n509 nvidia-uvm\n", encoding="utf-8"
    )
    assert len(nodes_found(simulated).nodes) == 12


def test_gpus_in_proc(simulated: SimulatedNode) -> None:
    """The kernel's list of GPUs has bus ids in NVML's form, minors and UUIDs."""
    known = {
        (gpu.pci_bus_id, gpu.minor, gpu.uuid) for gpu in driver_nodes.proc_gpus(simulated.host_root)
    }
    assert known == {(gpu.pci_bus_id, gpu.minor, gpu.uuid) for gpu in simulated.node.gpus}


def test_placeholder_of_a_uuid_is_not_a_uuid(simulated: SimulatedNode) -> None:
    """Before a GPU's first use, the driver shows question marks."""
    path = Path(simulated.host_root, "proc/driver/nvidia/gpus/0000:1b:00.0/information")
    path.write_text("GPU UUID: \t GPU-????????-????-????\nDevice Minor: \t 0\n", encoding="utf-8")
    (gpu,) = (
        g for g in driver_nodes.proc_gpus(simulated.host_root) if g.pci_bus_id == "00000000:1B:00.0"
    )
    assert (gpu.uuid, gpu.minor, gpu.model) == (None, 0, None)


def test_numa_nodes(simulated: SimulatedNode, tmp_path: Path) -> None:
    """The NUMA node is read from sysfs; -1 and a missing file are unknown."""
    assert driver_nodes.numa_node(simulated.host_root, "00000000:9D:00.0") == 1
    file = Path(simulated.host_root, "sys/bus/pci/devices/0000:9d:00.0/numa_node")
    file.write_text("-1\n", encoding="utf-8")
    assert driver_nodes.numa_node(simulated.host_root, "00000000:9D:00.0") is None
    assert driver_nodes.numa_node(str(tmp_path / "nowhere"), "00000000:9D:00.0") is None
    assert driver_nodes.numa_node(simulated.host_root, None) is None


@pytest.mark.parametrize(("value", "masks"), [("1", True), ("0", False)])
def test_mask_of_driver_parameters(simulated: SimulatedNode, value: str, masks: bool) -> None:
    """ModifyDeviceFiles of the driver's parameters decides; without parameters, nothing is
    masked.
    """
    path = Path(simulated.host_root, "proc/driver/nvidia/params")
    path.write_text(f"Mobile: 1\nModifyDeviceFiles: {value}\n", encoding="utf-8")
    assert driver_nodes.masks_params(simulated.host_root) is masks
    path.unlink()
    assert driver_nodes.masks_params(simulated.host_root) is False
