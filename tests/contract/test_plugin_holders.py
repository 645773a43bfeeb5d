# SPDX-License-Identifier: Apache-2.0
"""The plugin asks the kubelet which pods hold which units, for fault messages and metrics."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import procfs
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.pod_resources import PodResources, pod
from tests.kubelet.process import GPU, TIME_SLICING, PluginProcess, plugin
from tests.simulated import stub_events
from tests.simulated.node import make_node
from tests.waiting import eventually


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[PodResources]:
    (tmp_path / "pod-resources").mkdir()
    with PodResources(tmp_path / "pod-resources/kubelet.sock") as running:
        yield running


@pytest.fixture
def running(tmp_path: Path, kubelet: Kubelet, pods: PodResources) -> Iterator[PluginProcess]:
    """Yield a plugin that offers four replicas of a T4, and reads who holds them."""
    env = {"POD_RESOURCES_SOCKET": str(pods.socket)}
    node = make_node(tmp_path / "node", "t4")
    with plugin(tmp_path / "plugin", node, kubelet, TIME_SLICING, env) as made:
        kubelet.wait_for_devices(GPU, 4)
        yield made


def allocate_to_pod(kubelet: Kubelet, pods: PodResources, name: str) -> str:
    """Allocate a unit to a pod, and list it in the kubelet's pod resources; return its id."""
    (unit,) = kubelet.allocate(GPU, 1).ids
    pods.pods = [*pods.pods, pod("default", name, "main", GPU, [unit])]
    return unit


def test_fault_names_the_pods(running: PluginProcess, kubelet: Kubelet, pods: PodResources) -> None:
    for name in ("gpu-test-2", "gpu-test-1"):
        allocate_to_pod(kubelet, pods, name)
    uuid = str(running.node.node.gpus[0].uuid)
    stub_events.say(running.node, uuid, "recovery 1")
    running.wait_for_log(event="offered")
    stub_events.inject_xid(running.node, uuid, 79)
    kubelet.wait_for_devices(GPU, 0, 4)
    line = running.wait_for_log(reason="GpuUnhealthy", gpu=uuid)
    assert line["pods"] == ["default/gpu-test-1", "default/gpu-test-2"]
    assert line["event"].endswith("pods: default/gpu-test-1, default/gpu-test-2")


def test_fault_is_reported_without_pod_resources(
    running: PluginProcess, pods: PodResources
) -> None:
    """If the kubelet does not answer, the message states that the pods are not known."""
    pods.stop()
    uuid = str(running.node.node.gpus[0].uuid)
    stub_events.say(running.node, uuid, "recovery 1")
    stub_events.inject_xid(running.node, uuid, 79)
    line = running.wait_for_log(reason="GpuUnhealthy", gpu=uuid)
    assert line["pods"] is None
    assert line["event"].endswith("pods: not known")


FAIR = TIME_SLICING.replace("replicas: 4", "replicas: 4\n      memory: fair")
UNITS = """\
version: v1
sharing:
  memoryUnits:
    resources:
    - {name: nvidia.com/gpu, unit: GiB}
"""


def count_applied(running: PluginProcess) -> int:
    """Return how many configurations the plugin has applied."""
    return sum(line.get("reason") == "ConfigApplied" for line in running.log())


def record_container(running: PluginProcess, pod_name: str, **limit: object) -> None:
    """Record a container of a pod in the ledger, with its limit on the T4, as the wrapper does."""
    device = str(running.node.node.gpus[0].uuid)
    names = {"namespace": "default", "pod": pod_name, "container": "main"}
    memory = [{"device": device, "soft": 0, **limit}] if limit else []
    ours = {"pid": os.getpid(), "started": procfs.start_time(os.getpid())}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUHOOK_STATE_DIR", str(running.state))
        ledger.record("", pod_name, {**names, **ours, "memory": memory})


def test_pods_of_a_former_configuration_are_reported(
    running: PluginProcess, kubelet: Kubelet, pods: PodResources
) -> None:
    """The kubelet counts units by resource: pods of a removed resource are not counted."""
    running.configure(FAIR)
    eventually(lambda: count_applied(running) == 2, "the second configuration")
    for name in ("gpu-test-1", "gpu-test-2"):
        allocate_to_pod(kubelet, pods, name)
    record_container(running, "gpu-test-1", hard=4032 << 20)
    running.configure(UNITS)
    # The report on FAIR may run after the pods were placed.
    line = running.wait_for_log(reason="MemoryNotCounted", resource="nvidia.com/gpumem")
    assert line["level"] == "warning"
    assert line["pods"] == ["default/gpu-test-1", "default/gpu-test-2"]
    assert "default/gpu-test-1 (4032 MiB)" in line["event"]
    assert "default/gpu-test-2 (no recorded limit)" in line["event"]


def test_pods_of_the_current_configuration_are_not_reported(
    running: PluginProcess, kubelet: Kubelet, pods: PodResources
) -> None:
    """This applies after a restart, and to pods on a GPU that is not divided by memory."""
    running.configure(UNITS)
    kubelet.wait_for_devices("nvidia.com/gpumem", 14)
    answer = kubelet.allocate("nvidia.com/gpumem", 2)
    pods.pods = [pod("default", "gpu-test-1", "main", "nvidia.com/gpumem", answer.ids)]
    record_container(running, "gpu-test-1", hard=2048 << 20)
    calls = pods.calls
    assert running.stop() == 0
    running.start()
    eventually(lambda: pods.calls > calls, "a question to the kubelet")
    kubelet.wait_for_devices("nvidia.com/gpumem", 14)
    running.configure(TIME_SLICING)
    kubelet.wait_for_devices(GPU, 4)
    assert running.stop() == 0
    assert not [line for line in running.log() if line.get("reason") == "MemoryNotCounted"]


def test_metrics_name_the_holders(
    running: PluginProcess, kubelet: Kubelet, pods: PodResources
) -> None:
    unit = allocate_to_pod(kubelet, pods, "gpu-test-1")
    lines = running.metrics().splitlines()
    (holder,) = [line for line in lines if line.startswith("gpuhook_replica_holder{")]
    for label in (f'unit="{unit}"', 'namespace="default"', 'pod="gpu-test-1"', 'container="main"'):
        assert label in holder
    assert f'gpuhook_replicas_held{{resource="{GPU}"}} 1.0' in lines
    assert 'gpuhook_source_up{source="pod-resources"} 1.0' in lines
    pods.stop()
    assert 'gpuhook_source_up{source="pod-resources"} 0.0' in running.metrics()
