# SPDX-License-Identifier: Apache-2.0
"""A pod and its containers over the CRI, as the kubelet starts them, with gpuhook-runtime."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from tests.contract.cri import Cri, cri_of
from tests.contract.installation import CONTROL, Installation


@pytest.fixture(scope="module")
def node(
    node8: Installation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Cri, Installation]]:
    """Yield a containerd whose handler `nvidia` is gpuhook-runtime on a node with eight GPUs."""
    place = tmp_path_factory.mktemp("cri")
    made = node8.apart(place / "gpuhook")
    with cri_of(made, place) as containerd:
        yield containerd, made


def test_pod_gets_its_replica(node: tuple[Cri, Installation], tmp_path: Path) -> None:
    containerd, made = node
    uuid = made.gpu(1).uuid
    allocation = Allocation(
        envs={"NVIDIA_VISIBLE_DEVICES": str(uuid), "GPUHOOK_REPLICAS": f"{uuid}::2"}
    )
    with containerd.pod("sliced") as pod:
        nodes = containerd.view(pod, allocation).gpus()
        assert set(nodes) == {*CONTROL, made.device(1)}
        assert all(entry.allowed for entry in nodes.values())
        sleeping = containerd.container(pod, ["/bin/sleep", "600"], allocation, name="sleeper")
        holders = [holder for holder in made.holders() if holder["id"] == sleeping.id]
        assert [holder["replicas"] for holder in holders] == [[f"{uuid}::2"]]


def test_kubelet_annotation_assigns_the_gpu_and_a_pods_none(node: tuple[Cri, Installation]) -> None:
    """containerd copies the kubelet's annotations to config.json, and none of the pod."""
    containerd, made = node
    with containerd.pod("noted", annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}) as pod:
        granted = Allocation(annotations={"cdi.k8s.io/plugin": "nvidia.com/gpu=1"})
        for allocation, expected in ((granted, {*CONTROL, made.device(1)}), (Allocation(), set())):
            name = "noted" if expected else "plain"
            assert set(containerd.view(pod, allocation, name=name).gpus()) == expected
        sleeping = containerd.container(pod, ["/bin/sleep", "600"], granted, name="sleeper")
        explained = made.gpuhook("explain", sleeping.id)
        assert "containerd copied it" in explained.stdout, explained


def test_pod_without_a_request_gets_no_gpu(node: tuple[Cri, Installation]) -> None:
    containerd, _ = node
    with containerd.pod("plain") as pod:
        assert containerd.view(pod, Allocation()).gpus() == {}
