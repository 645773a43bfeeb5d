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
def made(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path, "h100x8")


def found(made: SimulatedNode, *, require: bool = True) -> driver_nodes.NodesFound:
    numbers = driver_nodes.majors(made.host_root)
    return driver_nodes.find(made.dev_root, numbers, made.node.gpus, require=require)


def test_control_and_gpu_nodes_are_found(made: SimulatedNode) -> None:
    """One node per GPU, by its minor and not by its index."""
    assert set(found(made).nodes) == set(made.node.device_nodes)
    assert found(made).warnings == ()


def test_majors(made: SimulatedNode) -> None:
    """The majors are those of NVIDIA's character devices in /proc/devices."""
    assert driver_nodes.majors(made.host_root) == made.node.majors


def test_node_of_a_lost_gpu_is_not_read(tmp_path: Path) -> None:
    """Even if nodes are required."""
    made = make_node(tmp_path, "lost-gpu")
    paths = [device.path for device in found(made).nodes]
    assert "/dev/nvidia2" not in paths
    assert "/dev/nvidia3" in paths


def test_owner_and_mode_are_those_of_the_node(made: SimulatedNode) -> None:
    path = Path(made.dev_root, "dev/nvidia3")
    path.chmod(0o660)
    os.chown(path, 0, 44)
    (node,) = (device for device in found(made).nodes if device.path == "/dev/nvidia3")
    assert (node.mode, node.gid, node.major, node.minor) == (0o660, 44, 195, 3)
    assert node.host_path == str(path)


@pytest.mark.parametrize("name", ["nvidiactl", "nvidia3"])
def test_missing_node_is_a_fault_or_a_warning(made: SimulatedNode, name: str) -> None:
    """It is a fault with `require`, else a warning."""
    path = Path(made.dev_root, "dev", name)
    path.unlink()
    with pytest.raises(GpuhookError) as caught:
        found(made)
    assert caught.value.code == "GH1210"
    assert caught.value.message == f"device node {path}: no such device node"
    assert "--dev-root" in caught.value.hint
    assert str(path) in "".join(found(made, require=False).warnings)


def test_missing_uvm_node_is_a_warning(made: SimulatedNode) -> None:
    """Without /dev/nvidia-uvm only CUDA does not work."""
    Path(made.dev_root, "dev/nvidia-uvm").unlink()
    (warning,) = found(made).warnings
    assert "CUDA will not start" in warning


def test_missing_modeset_node_has_no_warning(made: SimulatedNode) -> None:
    """A server has no /dev/nvidia-modeset."""
    Path(made.dev_root, "dev/nvidia-modeset").unlink()
    assert found(made).warnings == ()


def test_file_in_place_of_a_node_is_a_fault(made: SimulatedNode) -> None:
    """A regular file with a node's name has its own fault."""
    path = Path(made.dev_root, "dev/nvidia0")
    path.unlink()
    path.touch()
    with pytest.raises(GpuhookError) as caught:
        found(made)
    assert caught.value.code == "GH1210"
    assert caught.value.message == f"device node {path}: it is not a character device"
    assert "create-device-nodes --replace" in caught.value.hint


def test_stale_major_is_a_fault(made: SimulatedNode) -> None:
    """A node whose major is not the module's is refused with both numbers."""
    path = Path(made.dev_root, "dev/nvidia-uvm")
    path.unlink()
    os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(234, 0))
    with pytest.raises(GpuhookError) as caught:
        found(made)
    assert caught.value.code == "GH1210"
    assert "has major number 234, but kernel module" in caught.value.message
    assert caught.value.message.endswith(" has 509")
    assert "create-device-nodes --replace" in caught.value.hint
    assert "/dev/nvidia-uvm" not in [d.path for d in found(made, require=False).nodes]


def test_earlier_name_of_the_major(made: SimulatedNode) -> None:
    """Drivers that register 'nvidia-frontend' are checked in the same way."""
    Path(made.host_root, "proc/devices").write_text(
        "Character devices:\n195 nvidia-frontend\n509 nvidia-uvm\n", encoding="utf-8"
    )
    assert len(found(made).nodes) == 12


def test_gpus_in_proc(made: SimulatedNode) -> None:
    """The kernel's list of GPUs has bus ids in NVML's form, minors and UUIDs."""
    known = {
        (gpu.pci_bus_id, gpu.minor, gpu.uuid) for gpu in driver_nodes.proc_gpus(made.host_root)
    }
    assert known == {(gpu.pci_bus_id, gpu.minor, gpu.uuid) for gpu in made.node.gpus}


def test_placeholder_of_a_uuid_is_not_a_uuid(made: SimulatedNode) -> None:
    """Before a GPU's first use, the driver shows question marks."""
    path = Path(made.host_root, "proc/driver/nvidia/gpus/0000:1b:00.0/information")
    path.write_text("GPU UUID: \t GPU-????????-????-????\nDevice Minor: \t 0\n", encoding="utf-8")
    (gpu,) = (
        g for g in driver_nodes.proc_gpus(made.host_root) if g.pci_bus_id == "00000000:1B:00.0"
    )
    assert (gpu.uuid, gpu.minor, gpu.model) == (None, 0, None)


def test_numa_nodes(made: SimulatedNode, tmp_path: Path) -> None:
    """The NUMA node is read from sysfs; -1 and a missing file are unknown."""
    assert driver_nodes.numa_node(made.host_root, "00000000:9D:00.0") == 1
    file = Path(made.host_root, "sys/bus/pci/devices/0000:9d:00.0/numa_node")
    file.write_text("-1\n", encoding="utf-8")
    assert driver_nodes.numa_node(made.host_root, "00000000:9D:00.0") is None
    assert driver_nodes.numa_node(str(tmp_path / "nowhere"), "00000000:9D:00.0") is None
    assert driver_nodes.numa_node(made.host_root, None) is None


@pytest.mark.parametrize(("value", "masks"), [("1", True), ("0", False)])
def test_mask_of_driver_parameters(made: SimulatedNode, value: str, masks: bool) -> None:
    """ModifyDeviceFiles of the driver's parameters decides; without parameters, nothing is
    masked.
    """
    path = Path(made.host_root, "proc/driver/nvidia/params")
    path.write_text(f"Mobile: 1\nModifyDeviceFiles: {value}\n", encoding="utf-8")
    assert driver_nodes.masks_params(made.host_root) is masks
    path.unlink()
    assert driver_nodes.masks_params(made.host_root) is False
