# SPDX-License-Identifier: Apache-2.0
"""Scenarios of users who share one GPU: what the device plugin offers, labels and logs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, TIME_SLICING
from tests.kubelet.running import Run
from tests.waiting import eventually

GIB = 1 << 30


def node_with_gpu(name: str, architecture: str, capability: str, memory: int) -> Node:
    """Return a node with one GPU of this kind."""
    facts = dump_file.load("t4")
    one = replace(
        facts.gpus[0],
        name=name,
        architecture=architecture,
        compute_capability=capability,
        memory_bytes=memory,
    )
    return replace(facts, gpus=(one,))


def test_two_services_share_a_gpu_of_24_gib(run: Run, kubelet: Kubelet, tmp_path: Path) -> None:
    """Both get the GPU; a label has the memory of each replica, 12 GiB."""
    file = tmp_path / "features"
    running = run(
        node_with_gpu("NVIDIA GeForce RTX 4090", "ada", "8.9", 24 * GIB),
        TIME_SLICING.replace("replicas: 4", "replicas: 2"),
        GPUHOOK_LABELS="true",
        GFD_OUTPUT_FILE=str(file),
    )
    kubelet.wait_for_devices(GPU, 2)
    services = [kubelet.allocate(GPU, 1).response.envs for _ in range(2)]
    uuid = running.node.node.gpus[0].uuid
    assert [one["NVIDIA_VISIBLE_DEVICES"] for one in services] == [uuid, uuid]
    assert [one["GPUHOOK_REPLICAS"] for one in services] == [f"{uuid}::0", f"{uuid}::1"]
    eventually(file.exists, "the labels")
    labels = dict(line.split("=", 1) for line in file.read_text("utf-8").splitlines())
    assert labels["nvidia.com/gpu.memory"] == str(24 * 1024)
    assert labels["nvidia.com/gpu.replicas"] == "2"
    assert labels["nvidia.com/gpu.replica-memory"] == str(12 * 1024)
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-GeForce-RTX-4090-SHARED"
    assert not [line for line in running.log() if line.get("level") == "warning"]


@pytest.mark.parametrize(("replicas", "is_warned"), [(4, True), (1, False)])
def test_shared_gpu_older_than_pascal_is_a_warning(
    run: Run, kubelet: Kubelet, replicas: int, is_warned: bool
) -> None:
    running = run(
        node_with_gpu("NVIDIA GeForce GTX 980", "maxwell", "5.2", 4 * GIB),
        TIME_SLICING.replace("replicas: 4", f"replicas: {replicas}"),
    )
    kubelet.wait_for_devices(GPU, replicas)
    warnings = [str(line["event"]) for line in running.log() if line.get("level") == "warning"]
    assert is_warned == any("older than Pascal" in line for line in warnings)
