# SPDX-License-Identifier: Apache-2.0
"""The signature by which the plugin detects, without NVML, that a node must be read again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.devices.node_signature import signature
from tests.simulated.node import SimulatedNode, make_node

CAPABILITIES = "proc/driver/nvidia/capabilities/gpu0/mig"


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    made = make_node(tmp_path / "node", "h100x8", real_nodes=False)
    Path(made.host_root, CAPABILITIES, "gi1/ci0").mkdir(parents=True)
    return made


def _signature(node: SimulatedNode) -> tuple[str, ...]:
    libcuda = next(f.host_path for f in node.node.files if f.soname == "libcuda.so.1")
    return signature(node.host_root, libcuda)


def test_same_node_has_the_same_signature(node: SimulatedNode) -> None:
    assert _signature(node) == _signature(node)


@pytest.mark.parametrize("name", ["gi2/ci0", "gi1/ci1"])
def test_new_instance_changes_the_signature(node: SimulatedNode, name: str) -> None:
    before = _signature(node)
    Path(node.host_root, CAPABILITIES, name).mkdir(parents=True)
    assert _signature(node) != before


def test_recreated_instance_changes_the_signature(node: SimulatedNode) -> None:
    before = _signature(node)
    instance = Path(node.host_root, CAPABILITIES, "gi1/ci0")
    instance.with_name("other").mkdir()  # uses the next inode number
    instance.rmdir()
    instance.with_name("other").rename(instance)
    assert _signature(node) != before


@pytest.mark.parametrize("name", ["gi1/ci0", "gi1/access"])
def test_recreated_instance_with_the_same_inode_changes_the_signature(
    node: SimulatedNode, name: str
) -> None:
    """procfs gives the inode numbers of removed files to new ones."""
    Path(node.host_root, CAPABILITIES, "gi1/access").touch()
    before = _signature(node)
    assert _signature(node) == before
    os.utime(Path(node.host_root, CAPABILITIES, name), ns=(0, 0))
    assert _signature(node) != before


def test_removed_gpu_changes_the_signature(node: SimulatedNode) -> None:
    before = _signature(node)
    gpus = Path(node.host_root, "proc/driver/nvidia/gpus")
    gone = next(iter(gpus.iterdir()))
    gone.rename(gpus.parent / "gone")
    assert _signature(node) != before


def test_driver_upgrade_changes_the_signature(node: SimulatedNode) -> None:
    before = _signature(node)
    Path(node.host_root, "sys/module/nvidia/version").write_text("590.10\n")
    assert _signature(node) != before


def test_node_without_a_driver_has_a_signature(tmp_path: Path) -> None:
    assert signature(str(tmp_path), "") == signature(str(tmp_path), "")
