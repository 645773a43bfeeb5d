# SPDX-License-Identifier: Apache-2.0
"""Which AMD GPUs the device plugin offers by which name, as the kubelet sees it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import plugin
from tests.simulated import amd_tree
from tests.simulated.node import SimulatedNode

AMD, CHOSEN = "amd.com/gpu", "amd.com/gpu-for-video"
FIRST, SECOND = "0000:05:00.0", "0000:27:00.0"
RENAMED = f"""\
version: v1
sharing:
  timeSlicing:
    resources:
    - {{name: amd.com/gpu, devices: ["{SECOND}"], rename: {CHOSEN}, replicas: 1}}
"""


def node_at(root: Path) -> SimulatedNode:
    """Return the node whose files are below `root`, for the plugin's options."""
    place = str(root)
    roots = SimpleNamespace(host_root=place, dev_root=place, driver_root=place)
    return cast(SimulatedNode, roots)


def test_pod_chooses_a_gpu_by_its_resource(tmp_path: Path, kubelet: Kubelet) -> None:
    """An entry with one replica gives a GPU another name, and no other pod gets it."""
    tree = amd_tree.build(tmp_path / "node", "mi300x8")
    with plugin(tmp_path / "plugin", node_at(tree.root), kubelet, RENAMED):
        kubelet.wait_for_devices(CHOSEN, 1)
        kubelet.wait_for_devices(AMD, 7)
        pod = kubelet.allocate(CHOSEN, 1)
        assert pod.ids == (SECOND,)
        (second,) = (gpu for gpu in tree.node.gpus if gpu.pci_address == SECOND)
        assert second.devices[0].render_path in [one.host_path for one in pod.response.devices]
        assert SECOND not in kubelet.allocate(AMD, 7).ids


def test_gpu_of_a_virtual_machine_is_not_offered(tmp_path: Path, kubelet: Kubelet) -> None:
    """vfio-pci has taken it from amdgpu; a GPU that is taken later becomes unhealthy."""
    tree = amd_tree.build(tmp_path / "node", "mi300x8")
    tree.lose_gpu(FIRST)
    driver = tree.root / "sys/bus/pci/drivers/vfio-pci"
    driver.mkdir(parents=True)
    (driver / FIRST).symlink_to(tree.gpu(FIRST))
    with plugin(tmp_path / "plugin", node_at(tree.root), kubelet, "version: v1\n"):
        kubelet.wait_for_devices(AMD, 7)
        assert FIRST not in kubelet.devices(AMD)
        tree.lose_gpu(SECOND)
        (driver / SECOND).symlink_to(tree.gpu(SECOND))
        kubelet.wait_for_devices(AMD, 6, 1)
