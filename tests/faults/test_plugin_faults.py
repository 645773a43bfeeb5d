# SPDX-License-Identifier: Apache-2.0
"""Faults around the plugin process.

After each fault the kubelet has all devices, the process is the same, and log lines, messages,
memory and CPU time are bounded.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import replace
from itertools import cycle
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.depth import depth
from tests.faults.bounds import (
    Allowed,
    assert_serves,
    assert_xids_are_reported,
    bounded,
    healths_of,
)
from tests.faults.chaos import INVALID, RENAMED, UNKNOWN_ERROR, Chaos, replicas
from tests.kubelet.config_map import ConfigMap
from tests.kubelet.kubelet import Kubelet
from tests.kubelet.process import GPU, PluginProcess
from tests.kubelet.running import Run
from tests.simulated import changes, stub_events
from tests.waiting import eventually

pytestmark = pytest.mark.contract

MIG = "nvidia.com/mig-1g.5gb"
KUBELET_RESTARTS = depth(40, 200)
REMOVALS = depth(6, 30)
ROUNDS = depth(1, 4)
MIXED = "version: v1\nflags: {migStrategy: mixed}\n"


def test_many_kubelet_restarts_leave_all_devices(run: Run, kubelet: Kubelet) -> None:
    running = run()
    for _ in range(20):
        kubelet.wait_for_devices(GPU, 4)
        kubelet.restart()
    kubelet.wait_for_devices(GPU, 4)
    remaining = KUBELET_RESTARTS - 20
    # A kubelet that is not ready is called again; most are called once.
    with bounded(
        running, Allowed(lists=remaining, lines=4 * remaining, registrations=2 * remaining)
    ):
        for _ in range(remaining):
            kubelet.restart()
            kubelet.wait_for_devices(GPU, 4)
    assert set(os.listdir(kubelet.directory)) == {"kubelet.sock", "nvidia-gpu.sock"}
    assert_serves(kubelet, 4)


def test_restart_after_sigkill_takes_the_old_socket(run: Run, kubelet: Kubelet) -> None:
    """Allocated devices remain allocated."""
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    allocated = kubelet.allocate(GPU, 1)
    for turn in range(5):
        assert running.stop(signal.SIGKILL) == -signal.SIGKILL
        kubelet.wait_for_devices(GPU, 0, 4)
        assert (kubelet.directory / "nvidia-gpu.sock").exists()
        if turn % 2:
            kubelet.restart()
        running.start()
        kubelet.wait_for_devices(GPU, 4)
        assert kubelet.free(GPU) == 3
    kubelet.release(allocated)
    assert_serves(kubelet, 4)
    assert len(kubelet.registrations) <= 2 * 6
    assert running.stop() == 0
    assert os.listdir(kubelet.directory) == ["kubelet.sock"]


def test_a_plugin_without_an_api_server_has_no_openssl(run: Run, kubelet: Kubelet) -> None:
    """It would be 5 MB of each node's memory."""
    running = run("t4", GPUHOOK_HEALTH_POLL_INTERVAL="100ms")
    kubelet.wait_for_devices(GPU, 4)
    kubelet.release(kubelet.allocate(GPU, 1))
    maps = Path(f"/proc/{running.pid}/maps").read_text(encoding="utf-8")
    assert "cygrpc" in maps
    assert "libssl" not in maps


def test_removed_socket_is_created_again(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    path = kubelet.directory / "nvidia-gpu.sock"
    with bounded(running, Allowed(lists=REMOVALS, lines=3 * REMOVALS, registrations=2 * REMOVALS)):
        for _ in range(REMOVALS):
            known = kubelet.endpoint(GPU)
            path.unlink()
            kubelet.wait_for(
                lambda known=known: kubelet.endpoint(GPU) is not known,  # type: ignore[misc]
                "a new registration",
            )
            kubelet.wait_for_devices(GPU, 4)
            assert path.is_socket()
    assert_serves(kubelet, 4)


def test_removed_plugin_directory_is_used_again(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    with bounded(running, Allowed(lists=20, lines=150, registrations=40)):
        for turn in range(12):
            kubelet.stop()
            if turn % 3 == 0:
                kubelet.directory.rename(kubelet.directory.with_name(f"aside{turn}"))
            else:
                kubelet.remove_directory()
            kubelet.start()
            kubelet.wait_for_devices(GPU, 4)
    assert_serves(kubelet, 4)


def test_unloaded_driver_makes_all_devices_unhealthy(run: Run, kubelet: Kubelet) -> None:
    """They are healthy when the driver is reloaded."""
    running = run("h100x8", GPUHOOK_HEALTH_POLL_INTERVAL="200ms")
    kubelet.wait_for_devices(GPU, 32)
    with bounded(running, Allowed(lists=4 * 2, lines=16 * 2)):
        for _ in range(2):
            stub_events.take_away(running.node)
            kubelet.wait_for_devices(GPU, 0, 32)
            stub_events.bring_back(running.node)
            kubelet.wait_for_devices(GPU, 32)
    assert_serves(kubelet, 32)
    assert_xids_are_reported(running, running.node.node.gpus[3].uuid)


def test_upgraded_driver_is_used_without_a_restart(
    run: Run, kubelet: Kubelet, tmp_path: Path
) -> None:
    """The labels have the new version, and XIDs of the new library are reported."""
    labels = tmp_path / "labels"
    running = run(
        "t4",
        GPUHOOK_HEALTH_POLL_INTERVAL="200ms",
        GPUHOOK_LABELS="true",
        GFD_OUTPUT_FILE=str(labels),
    )
    kubelet.wait_for_devices(GPU, 4)
    key = "nvidia.com/cuda.driver-version.full"
    eventually(lambda: labels.exists() and f"{key}=580.95.05" in labels.read_text("utf-8"))
    with bounded(running, Allowed(lists=8, lines=30)):
        changes.upgrade(running.node, "t4", "580.126.09")
        eventually(lambda: f"{key}=580.126.09" in labels.read_text("utf-8"), "the new version")
        kubelet.wait_for_devices(GPU, 4)
    assert_serves(kubelet, 4)
    maps = Path(f"/proc/{running.pid}/maps").read_text(encoding="utf-8")
    assert "libnvidia-ml.so.580.126.09" in maps
    assert_xids_are_reported(running, running.node.node.gpus[0].uuid)


def test_thousands_of_xids_cause_few_lists(run: Run, kubelet: Kubelet) -> None:
    """GPUs without an XID remain healthy."""
    running = run("h100x8")
    kubelet.wait_for_devices(GPU, 32)
    uuids = [str(gpu.uuid) for gpu in running.node.node.gpus]
    for uuid in uuids[:2]:
        stub_events.say(running.node, uuid, "recovery 1")
    with bounded(running, Allowed(lists=8, lines=60)):
        for _ in range(5):
            for uuid in uuids[:2]:
                stub_events.inject_xid(running.node, uuid, 79, count=500)
            for uuid in uuids[2:]:
                stub_events.inject_xid(running.node, uuid, 31, count=200)
            stub_events.inject_xid(running.node, None, 13, count=200)
            stub_events.inject_xid(running.node, "GPU-unknown", 79, count=100)
        kubelet.wait_for_devices(GPU, 24, 8)
        other_gpus = kubelet.allocate(GPU, 24)
        kubelet.release(other_gpus)
        for uuid in uuids[:2]:
            stub_events.say(running.node, uuid, "recovery 0")
        kubelet.wait_for_devices(GPU, 32)
    assert_serves(kubelet, 32)


def test_permanently_failing_wait_is_retried_with_pauses(run: Run, kubelet: Kubelet) -> None:
    """Allocations succeed; only events are missed."""
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    with bounded(running, Allowed(lists=4, lines=30)):
        stub_events.fail_wait(running.node, UNKNOWN_ERROR, always=True)
        running.wait_for_log(reason="WatchFailed")
        running.wait_for_log(event="no events yet")
        assert_serves(kubelet, 4)
    stub_events.mend_wait(running.node)
    assert_xids_are_reported(running, running.node.node.gpus[0].uuid)
    assert_serves(kubelet, 4)


def test_lost_gpu_makes_only_its_replicas_unhealthy(run: Run, kubelet: Kubelet) -> None:
    running = run("h100x8", GPUHOOK_HEALTH_POLL_INTERVAL="200ms")
    kubelet.wait_for_devices(GPU, 32)
    uuids = [str(gpu.uuid) for gpu in running.node.node.gpus]
    with bounded(running, Allowed(lists=12, lines=60)):
        for uuid in uuids[:2]:
            stub_events.lose(running.node, uuid)
            kubelet.wait_for_devices(GPU, 28, 4)
            assert healths_of(kubelet, uuid) == {"Unhealthy"}
            stub_events.find(running.node, uuid)
            kubelet.wait_for_devices(GPU, 32)
    assert_serves(kubelet, 32)
    assert_xids_are_reported(running, uuids[0])


def test_plugged_and_unplugged_gpus_change_the_offer(run: Run, kubelet: Kubelet) -> None:
    running = run("h100x8", GPUHOOK_HEALTH_POLL_INTERVAL="200ms")
    kubelet.wait_for_devices(GPU, 32)
    facts = dump_file.load("h100x8")
    with bounded(running, Allowed(lists=16, lines=60)):
        for gone in ({7}, {0, 1, 5}):
            changes.become(running.node, changes.without(facts, gone))
            remaining = 32 - 4 * len(gone)
            eventually(lambda remaining=remaining: kubelet.allocatable(GPU) == remaining, "fewer")  # type: ignore[misc]
            changes.become(running.node, facts)
            kubelet.wait_for_devices(GPU, 32)
    assert_serves(kubelet, 32)
    assert_xids_are_reported(running, facts.gpus[7].uuid)


def test_created_and_destroyed_mig_instances_change_the_offer(run: Run, kubelet: Kubelet) -> None:
    running = run("a100-mig", MIXED, GPUHOOK_HEALTH_POLL_INTERVAL="200ms")
    kubelet.wait_for_devices(MIG, 7)
    facts = dump_file.load("a100-mig")
    first, *others = facts.gpus
    with bounded(running, Allowed(lists=40, lines=60, registrations=4)):
        for count in (3, 0, 7):
            fewer = replace(first, instances=first.instances[:count])
            changes.become(running.node, replace(facts, gpus=(fewer, *others)))
            kubelet.wait_for_devices(MIG, count)
    allocated = kubelet.allocate(MIG, 7)
    wanted = {instance.uuid for instance in first.instances}
    assert set(allocated.response.envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == wanted
    assert_serves(kubelet, 1)


def test_last_of_many_configurations_applies(run: Run, kubelet: Kubelet) -> None:
    """Valid, invalid and renaming ones, faster than they are read."""
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    texts = cycle([replicas(2), INVALID, RENAMED, replicas(3), "{", replicas(4), ""])
    with bounded(running, Allowed(lists=120, lines=500, registrations=120)):
        for turn in range(140):
            running.configure(next(texts))
            if turn % 5 == 4:
                running.signal(signal.SIGHUP)
            if turn % 7 == 6:
                time.sleep(0.03)
        running.configure(INVALID)
        running.configure(replicas(5))
        kubelet.wait_for_devices(GPU, 5)
        eventually(lambda: kubelet.allocatable(f"{GPU}.shared") == 0, "no old name")
    assert_serves(kubelet, 5)


def test_deleted_configuration_keeps_the_last_one(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    with bounded(running, Allowed(lists=15, lines=60)):
        for count in (2, 3, 4, 2, 6):
            running.config.unlink()
            running.signal(signal.SIGHUP)
            eventually(lambda: refusals(running) > 0, "a refusal")
            assert kubelet.capacity(GPU) > 0
            running.configure(replicas(count))
            kubelet.wait_for_devices(GPU, count)
    assert_serves(kubelet, 6)


def refusals(running: PluginProcess) -> int:
    """Return how often a refused configuration was reported."""
    return sum(line.get("reason") == "ConfigRefused" for line in running.log())


def test_last_version_of_a_config_map_applies(run: Run, kubelet: Kubelet, tmp_path: Path) -> None:
    """Its content and the selected name change repeatedly."""
    mounted = ConfigMap(tmp_path / "configs")
    mounted.publish(a=replicas(2), b=replicas(3))
    name = tmp_path / "name"
    name.write_text("a", encoding="utf-8")
    running = run(
        CONFIG_FILE="",
        GPUHOOK_CONFIG_DIR=str(mounted.directory),
        GPUHOOK_CONFIG_NAME_FILE=str(name),
        DEFAULT_CONFIG="a",
    )
    kubelet.wait_for_devices(GPU, 2)
    with bounded(running, Allowed(lists=60, lines=400)):
        for turn in range(60):
            mounted.publish(a=INVALID if turn % 3 == 0 else replicas(2), b=replicas(4 + turn % 5))
            name.write_text("ab?"[turn % 3], encoding="utf-8")
            if turn % 6 == 5:
                time.sleep(0.05)
        name.write_text("b", encoding="utf-8")
        mounted.publish(a=replicas(2), b=replicas(9))
        kubelet.wait_for_devices(GPU, 9)
        mounted.publish(a=replicas(7), b=replicas(9))
        name.write_text("a", encoding="utf-8")
        kubelet.wait_for_devices(GPU, 7)
    assert_serves(kubelet, 7)


@pytest.mark.parametrize("seed", [1, 2])
def test_random_faults_end_with_all_devices(run: Run, kubelet: Kubelet, seed: int) -> None:
    running = run("h100x8", GPUHOOK_HEALTH_POLL_INTERVAL="200ms")
    kubelet.wait_for_devices(GPU, 32)
    chance = random.Random(seed)
    chaos = Chaos(running)
    with bounded(
        running, Allowed(lists=150 * ROUNDS, lines=500 * ROUNDS, registrations=75 * ROUNDS)
    ):
        for _ in range(ROUNDS):
            for _ in range(25):
                chance.choice(chaos.faults)(chance)
                time.sleep(chance.choice([0, 0, 0.01, 0.1]))
            chaos.recover()
            kubelet.wait_for_devices(GPU, 32)
            eventually(lambda: kubelet.allocatable(f"{GPU}.shared") == 0, "no old name")
    assert_serves(kubelet, 32)
    assert_xids_are_reported(running, chaos.uuids[0])
