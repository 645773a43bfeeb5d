# SPDX-License-Identifier: Apache-2.0
"""The labels and metrics of the device plugin, as a process, on nodes with AMD GPUs."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from gpuhook.vendors.amd.inventory import amd_dump
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import plugin
from tests.simulated import amd_tree
from tests.simulated.node import SimulatedNode
from tests.waiting import eventually

SHARED = """\
version: v1
sharing: {timeSlicing: {resources: [{name: amd.com/gpu, replicas: 4}]}}
gpuhook: {labels: true}
"""


def read(path: Path) -> dict[str, str]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else ()
    return dict(line.split("=", 1) for line in lines)


def test_labels_and_metrics_follow_the_partitions(tmp_path: Path, kubelet: Kubelet) -> None:
    """The file that NFD reads is updated when the modes change, without a restart."""
    tree = amd_tree.build(tmp_path / "node", "mi300x8")
    root, path = str(tree.root), tmp_path / "features.d" / "gfd"
    node = cast("SimulatedNode", SimpleNamespace(host_root=root, dev_root=root, driver_root=root))
    options = (f"--output-file={path}",)
    with plugin(tmp_path / "plugin", node, kubelet, SHARED, {}, options) as running:
        kubelet.wait_for_devices("amd.com/gpu", 32)
        eventually(lambda: "amd.com/gpu.replicas" in read(path), "the file has labels")
        found = read(path)
        assert found["beta.amd.com/gpu.vram.192G"] == found["amd.com/gpu.count"] == "8"
        assert found["amd.com/gpu.replicas"] == "4"
        assert not any(name.startswith("nvidia.com/") for name in found)
        lines = running.metrics()
        assert 'gpuhook_gpu_memory_total_bytes{gpu="0000:05:00.0"} 206141652992.0' in lines
        assert 'gpuhook_source_up{source="amd"} 1.0' in lines
        made = amd_tree.build(tmp_path / "next", amd_dump.load("mi300x-cpx"))
        shutil.move(tree.root / "sys", tmp_path / "old")
        shutil.move(made.root / "sys", tree.root / "sys")
        kubelet.wait_for_devices("amd.com/gpu", 256)
        eventually(lambda: read(path).get("amd.com/gpu.vram") == "24G", "the labels are new")
        found = read(path)
        assert found["beta.amd.com/gpu.vram.24G"] == found["amd.com/gpu.count"] == "64"
        assert "beta.amd.com/gpu.vram.192G" not in found
