# SPDX-License-Identifier: Apache-2.0
"""Memory units and limits with a real device plugin: from its configuration to the kubelet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.kubelet.kubelet import AdmissionError, Allocated, Kubelet
from tests.kubelet.process import TIME_SLICING
from tests.kubelet.running import Run
from tests.simulated import stub_events

GPU, UNITS = "nvidia.com/gpu", "nvidia.com/gpumem"
MEMORY_UNITS = """\
version: v1
sharing:
  memoryUnits:
    policy: packed
    resources:
    - name: nvidia.com/gpu
      unit: GiB
"""
LIMITS = TIME_SLICING + "      memory: fair\n"
PREFIX = "/var/run/gpuhook/memory/"


def gpu_of(pod: Allocated) -> str:
    """Return the UUID of a container's only GPU, by its units and its environment."""
    (uuid,) = {name.partition("::")[0] for name in pod.ids}
    assert pod.response.envs["NVIDIA_VISIBLE_DEVICES"] == uuid
    return uuid


def grants(pod: Allocated) -> list[tuple[str, str]]:
    return [
        (mount.container_path.removeprefix(PREFIX), mount.host_path)
        for mount in pod.response.mounts
        if mount.container_path.startswith(PREFIX)
    ]


def test_gib_units_of_one_gpu(run: Run, kubelet: Kubelet) -> None:
    running = run("t4", MEMORY_UNITS)
    uuid = running.node.node.gpus[0].uuid
    kubelet.wait_for_devices(UNITS, 14)
    assert list(kubelet.devices(UNITS)) == [f"{uuid}::{n}" for n in range(14)]
    assert not any(device.topology.nodes for device in kubelet.devices(UNITS).values())
    pods = [kubelet.allocate(UNITS, size) for size in (6, 8)]
    assert [grants(pod) for pod in pods] == [
        [(f"{uuid},hard=6144,soft=6144,asked", "/dev/null")],
        [(f"{uuid},hard=8192,soft=8192,asked", "/dev/null")],
    ]
    assert "GPUHOOK_REPLICAS" not in pods[0].response.envs
    assert pods[1].response.envs["NVIDIA_GPU_MEMORY_LIMIT"] == "8192"
    assert kubelet.free(UNITS) == 0
    kubelet.release(pods[0])
    assert gpu_of(kubelet.allocate(UNITS, 3)) == uuid
    assert running.stop() == 0


def test_packed_units_across_restarts(run: Run, kubelet: Kubelet) -> None:
    """Each pod goes to the fullest GPU that fits, also after restarts of plugin and kubelet."""
    running = run("h100x8", MEMORY_UNITS)
    kubelet.wait_for_devices(UNITS, 8 * 79)
    first = [kubelet.allocate(UNITS, size) for size in (40, 30, 20, 9)]
    assert len({gpu_of(pod) for pod in (first[0], first[1], first[3])}) == 1  # 79 of 79
    assert gpu_of(first[2]) != gpu_of(first[0])

    assert running.stop() == 0
    kubelet.wait_for(lambda: kubelet.allocatable(UNITS) == 0, "no unit without a plugin")
    running.start()
    kubelet.wait_for_devices(UNITS, 8 * 79)
    assert gpu_of(kubelet.allocate(UNITS, 59)) == gpu_of(first[2])

    registered = len(kubelet.registrations)
    kubelet.restart()
    kubelet.wait_for(lambda: len(kubelet.registrations) > registered, "a registration")
    kubelet.wait_for_devices(UNITS, 8 * 79)
    full = {gpu_of(first[0]), gpu_of(first[2])}
    whole = [kubelet.allocate(UNITS, 79) for _ in range(6)]
    assert len({gpu_of(pod) for pod in whole} - full) == 6
    assert kubelet.free(UNITS) == 0


def test_request_larger_than_any_gpu_is_refused(run: Run, kubelet: Kubelet) -> None:
    running = run("h100x8", MEMORY_UNITS)
    kubelet.wait_for_devices(UNITS, 8 * 79)
    with pytest.raises(AdmissionError, match=r"GH1849: 80 units .* at most 79 are free"):
        kubelet.allocate(UNITS, 80)
    running.wait_for_log(event="refused", method="GetPreferredAllocation")
    for _ in range(8):
        kubelet.allocate(UNITS, 50)
    assert kubelet.free(UNITS) == 8 * 29
    with pytest.raises(AdmissionError, match=r"GH1849: 30 units .* at most 29 are free"):
        kubelet.allocate(UNITS, 30)
    with pytest.raises(AdmissionError, match="unavailable"):
        kubelet.allocate(UNITS, 8 * 29 + 1)


def test_spread_selects_the_emptiest_gpu(run: Run, kubelet: Kubelet) -> None:
    run("h100x8", MEMORY_UNITS.replace("packed", "spread"))
    kubelet.wait_for_devices(UNITS, 8 * 79)
    assert len({gpu_of(kubelet.allocate(UNITS, 10)) for _ in range(8)}) == 8


def test_units_of_a_lost_gpu_are_unhealthy(run: Run, kubelet: Kubelet) -> None:
    """The driver reports no memory size of a lost GPU; its units remain in the list."""
    running = run("h100x8", MEMORY_UNITS)
    kubelet.wait_for_devices(UNITS, 8 * 79)
    lost = str(running.node.node.gpus[3].uuid)
    stub_events.lose(running.node, lost)
    kubelet.wait_for_devices(UNITS, 7 * 79, 79)
    bad = {name for name, unit in kubelet.devices(UNITS).items() if unit.health != "Healthy"}
    assert bad == {f"{lost}::{n}" for n in range(79)}


def test_mib_units_of_a_large_gpu(run: Run, kubelet: Kubelet) -> None:
    """The plugin registers, lists and allocates 24,000 units; its log lines remain short."""
    facts = dump_file.load("t4")
    large = replace(facts.gpus[0], memory_bytes=(24_000 + 256) << 20)
    running = run(replace(facts, gpus=(large,)), MEMORY_UNITS.replace("GiB", "MiB"))
    kubelet.wait_for_devices(UNITS, 24_000)
    small = kubelet.allocate(UNITS, 5_000)
    assert grants(small) == [(f"{large.uuid},hard=5000,soft=5000,asked", "/dev/null")]
    kubelet.allocate(UNITS, 19_000)
    assert kubelet.free(UNITS) == 0
    kubelet.release(small)
    kubelet.allocate(UNITS, 4_999)
    line = running.wait_for_log(event="allocated")
    assert len(str(line)) < 2000


def test_configuration_with_too_many_units_is_refused(run: Run, kubelet: Kubelet) -> None:
    running = run("h100x8", MEMORY_UNITS)
    kubelet.wait_for_devices(UNITS, 8 * 79)
    running.configure(MEMORY_UNITS.replace("GiB", "MiB"))
    line = running.wait_for_log(reason="ConfigRefused")
    assert "the smallest possible unit is 10 MiB" in line["event"]
    assert kubelet.allocatable(UNITS) == 8 * 79
    running.configure(MEMORY_UNITS.replace("GiB", "10Mi"))
    kubelet.wait_for(lambda: kubelet.allocatable(UNITS) > 60_000, "units of 10 MiB")
    kubelet.allocate(UNITS, 8_000)


def test_replicas_get_a_fair_share_of_memory(run: Run, kubelet: Kubelet) -> None:
    running = run("t4", LIMITS)
    uuid = running.node.node.gpus[0].uuid
    kubelet.wait_for_devices(GPU, 4)
    pod = kubelet.allocate(GPU, 1)
    assert grants(pod) == [(f"{uuid},hard=3776,soft=3776", "/dev/null")]
    assert pod.response.envs["NVIDIA_GPU_MEMORY_LIMIT"] == "3776"
    assert "NVIDIA_GPU_MEMORY_REQUEST" not in pod.response.envs
    assert pod.response.envs["GPUHOOK_REPLICAS"] == f"{uuid}::0"
    running.configure(LIMITS.replace("fair", "4Gi"))
    line = running.wait_for_log(reason="ConfigRefused")
    assert "4 replicas of 4096 MiB are 16384 MiB" in line["event"]
    assert grants(kubelet.allocate(GPU, 1)) == [(f"{uuid},hard=3776,soft=3776", "/dev/null")]


def test_number_of_replicas_follows_from_their_memory(run: Run, kubelet: Kubelet) -> None:
    running = run("t4", TIME_SLICING.replace("replicas: 4", "replicas: {memory: 5Gi}"))
    uuid = running.node.node.gpus[0].uuid
    kubelet.wait_for_devices(GPU, 2)
    assert grants(kubelet.allocate(GPU, 1)) == [(f"{uuid},hard=5120,soft=5120", "/dev/null")]
