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
    """Give a containerd whose handler `nvidia` is gpuhook-runtime on a node with eight GPUs."""
    place = tmp_path_factory.mktemp("cri")
    made = node8.apart(place / "gpuhook")
    with cri_of(made, place) as containerd:
        yield containerd, made


def test_pod_gets_its_replica(node: tuple[Cri, Installation], tmp_path: Path) -> None:
    containerd, made = node
    uuid = made.gpu(1).uuid
    given = Allocation(envs={"NVIDIA_VISIBLE_DEVICES": str(uuid), "GPUHOOK_REPLICAS": f"{uuid}::2"})
    with containerd.pod("sliced") as pod:
        nodes = containerd.view(pod, given).gpus()
        assert set(nodes) == {*CONTROL, made.device(1)}
        assert all(entry.allowed for entry in nodes.values())
        sleeping = containerd.container(pod, ["/bin/sleep", "600"], given, name="sleeper")
        held = [holder for holder in made.holders() if holder["id"] == sleeping.id]
        assert [holder["replicas"] for holder in held] == [[f"{uuid}::2"]]


def test_annotations_of_the_kubelet_and_of_a_pod(node: tuple[Cri, Installation]) -> None:
    """containerd copies the kubelet's to config.json, and writes its own key that tells a sandbox
    from a container; of the pod it copies none.
    """
    containerd, made = node
    with containerd.pod("noted", annotations={"cdi.k8s.io/x": "nvidia.com/gpu=all"}) as pod:
        given = Allocation(annotations={"cdi.k8s.io/plugin": "nvidia.com/gpu=1"})
        for allocation, expected in ((given, {*CONTROL, made.device(1)}), (Allocation(), set())):
            name = "noted" if expected else "plain"
            assert set(containerd.view(pod, allocation, name=name).gpus()) == expected
        sleeping = containerd.container(pod, ["/bin/sleep", "600"], given, name="sleeper")
        told = made.gpuhook("explain", sleeping.id)
        assert "containerd copied it" in told.stdout, told


def test_pod_without_a_request_gets_none(node: tuple[Cri, Installation]) -> None:
    containerd, _ = node
    with containerd.pod("plain") as pod:
        assert containerd.view(pod, Allocation()).gpus() == {}
