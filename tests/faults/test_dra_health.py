# SPDX-License-Identifier: Apache-2.0
"""The process of the DRA drivers while GPUs fail and recover: the stream and the taints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuhook.vendors.amd.inventory import amd_dump
from tests.cluster_api.cluster_server import Cluster, Fault
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import DraProcess
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.kubelet.health_watch import UNHEALTHY, UNKNOWN, HealthWatch
from tests.simulated import stub_events
from tests.simulated.amd_tree import AmdTree
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER, AMD = "gpu.nvidia.com", "gpu.amd.com"
QUICK = {"GPUHOOK_HEALTH_POLL_INTERVAL": "200ms"}


def taints(cluster: Cluster) -> dict[str, list[tuple[str, str, str]]]:
    """Return key, value and effect of the taints in the API server, by device."""
    devices = (one for found in cluster.store.slices() for one in found["spec"].get("devices", ()))
    return {
        one["name"]: [(t["key"], t.get("value", ""), t["effect"]) for t in one["taints"]]
        for one in devices
        if one.get("taints")
    }


def times(cluster: Cluster) -> list[str]:
    devices = (one for found in cluster.store.slices() for one in found["spec"].get("devices", ()))
    return [taint["timeAdded"] for one in devices for taint in one.get("taints", ())]


def published(cluster: Cluster, count: int) -> None:
    """Wait until the API server has this number of devices."""
    eventually(
        lambda: sum(len(one["spec"].get("devices", ())) for one in cluster.store.slices()) == count,
        f"{count} devices",
    )


def name_of(cluster: Cluster, address: str) -> str:
    """Return the device with this PCI address."""
    devices = (one for found in cluster.store.slices() for one in found["spec"].get("devices", ()))
    (found,) = (one["name"] for one in devices if address in str(one["attributes"]))
    return str(found)


def uuid(driver: DraProcess, minor: int) -> str:
    """Return the UUID of the device gpu-<minor>."""
    (found,) = (gpu.uuid for gpu in driver.node.node.gpus if gpu.minor == minor)
    return str(found)


def fail(driver: DraProcess, number: int, xid: int) -> None:
    """Report an XID of a GPU, after which the driver requires a reset."""
    stub_events.say(driver.node, uuid(driver, number), "recovery 1")
    stub_events.inject_xid(driver.node, uuid(driver, number), xid)


def recover(driver: DraProcess, number: int) -> None:
    """Let the driver require no action, as after a reset."""
    stub_events.say(driver.node, uuid(driver, number), "recovery 0")


def clear(driver: DraProcess, gpu: str) -> None:
    """Run `gpuhook health clear`."""
    command = [sys.executable, "-m", "gpuhook", "health", "clear", gpu]
    subprocess.run(command, env=driver.env, check=True, capture_output=True, timeout=60)


@pytest.fixture
def driver(run_dra: RunDra, cluster: Cluster) -> DraProcess:
    made = run_dra("h100x8", **QUICK)
    published(cluster, 8)
    return made


@pytest.fixture
def watch(driver: DraProcess, dra_kubelet: DraKubelet) -> HealthWatch:
    found = HealthWatch(dra_kubelet.plugin(DRIVER).channel)
    found.wait_for()
    return found


XID = (f"{DRIVER}/xid", "79", "NoSchedule")
ACTION = (f"{DRIVER}/recovery-action", "", "NoSchedule")


def test_fatal_xid_taints_its_gpu_until_the_driver_requires_no_action(
    driver: DraProcess, watch: HealthWatch, cluster: Cluster, dra_kubelet: DraKubelet
) -> None:
    plugin = dra_kubelet.plugin(DRIVER)
    assert plugin.supported[-2:] == ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
    fail(driver, 2, 79)
    watch.wait_for(gpu_2=UNHEALTHY)
    assert "XID 79 (the GPU has fallen off the bus)" in watch.messages["gpu-2"]
    assert "reset the GPU" in watch.messages["gpu-2"]
    eventually(lambda: taints(cluster) == {"gpu-2": [XID, ACTION]})
    first = times(cluster)
    fail(driver, 2, 79)  # the mark is renewed
    stub_events.inject_xid(driver.node, uuid(driver, 3), 31)  # of an application
    fail(driver, 4, 95)
    watch.wait_for(gpu_2=UNHEALTHY, gpu_4=UNHEALTHY)
    eventually(lambda: taints(cluster).keys() == {"gpu-2", "gpu-4"})
    assert times(cluster)[:2] == first
    recover(driver, 2)
    watch.wait_for(gpu_4=UNHEALTHY)
    eventually(lambda: taints(cluster).keys() == {"gpu-4"})
    recover(driver, 4)
    watch.wait_for()
    eventually(lambda: taints(cluster) == {})


def test_operator_clears_a_taint(driver: DraProcess, watch: HealthWatch, cluster: Cluster) -> None:
    stub_events.lose(driver.node, uuid(driver, 5))
    eventually(lambda: taints(cluster).keys() == {"gpu-5"})
    stub_events.find(driver.node, uuid(driver, 5))
    clear(driver, "5")
    watch.wait_for()
    eventually(lambda: taints(cluster) == {})


def test_taints_remain_over_a_restart_and_nothing_is_written(
    driver: DraProcess, watch: HealthWatch, cluster: Cluster, dra_kubelet: DraKubelet
) -> None:
    fail(driver, 2, 79)
    eventually(lambda: taints(cluster) == {"gpu-2": [XID, ACTION]})
    before, writes = cluster.store.slices(), cluster.writes()
    driver.kill()
    watch.wait_for_end()
    driver.start()
    dra_kubelet.wait_for_registrations(2)
    again = HealthWatch(dra_kubelet.plugin(DRIVER).channel, "v1")
    again.wait_for(gpu_2=UNHEALTHY)
    assert (cluster.store.slices(), cluster.writes()) == (before, writes)
    Path(driver.node.host_root, "proc/sys/kernel/random/boot_id").write_text("next\n", "utf-8")
    recover(driver, 2)
    driver.kill()
    driver.start()  # the node was rebooted
    eventually(lambda: taints(cluster) == {})


def test_one_lost_gpu_taints_only_itself(
    driver: DraProcess, watch: HealthWatch, cluster: Cluster
) -> None:
    stub_events.lose(driver.node, uuid(driver, 5))
    watch.wait_for(gpu_5=UNHEALTHY)
    eventually(lambda: taints(cluster).keys() == {"gpu-5"})
    assert (f"{DRIVER}/gpu-lost", "", "NoSchedule") in taints(cluster)["gpu-5"]


def test_failed_publish_is_retried(
    driver: DraProcess, watch: HealthWatch, cluster: Cluster
) -> None:
    cluster.faults.append(Fault("update", "resourceslices", count=2, status=503))
    fail(driver, 2, 79)
    watch.wait_for(gpu_2=UNHEALTHY)
    eventually(lambda: taints(cluster).keys() == {"gpu-2"})
    assert all(one.count == 0 for one in cluster.faults)


def test_driver_that_does_not_answer_is_unknown_and_evicts_no_pod(
    run_dra: RunDra, cluster: Cluster, dra_kubelet: DraKubelet
) -> None:
    driver = run_dra("t4", GPUHOOK_HEALTH_TAINT_EFFECT="NoExecute", **QUICK)
    published(cluster, 1)
    watch = HealthWatch(dra_kubelet.plugin(DRIVER).channel)
    watch.wait_for()
    stub_events.take_away(driver.node)
    watch.wait_for(gpu_0=UNKNOWN)
    assert "the driver does not answer" in watch.messages["gpu-0"]
    unmonitored = (f"{DRIVER}/unmonitored", "", "NoSchedule")
    eventually(lambda: unmonitored in taints(cluster).get("gpu-0", ()))
    stub_events.bring_back(driver.node)
    watch.wait_for()
    eventually(lambda: taints(cluster) == {})
    fail(driver, 0, 79)
    xid = (f"{DRIVER}/xid", "79", "NoExecute")
    eventually(lambda: xid in taints(cluster).get("gpu-0", ()))


def test_list_is_repeated_while_nothing_changes(driver: DraProcess, watch: HealthWatch) -> None:
    """The kubelet forgets a device that it has not heard of for 30 seconds."""
    lists = watch.lists
    watch.wait_for_lists(lists + 1)


def test_end_of_the_driver_ends_the_stream(driver: DraProcess, watch: HealthWatch) -> None:
    driver.stop()
    watch.wait_for_end()
    assert os.path.exists(driver.place)


def test_amd_gpu_with_errors_and_a_lost_one(
    run_dra: RunDra, cluster: Cluster, dra_kubelet: DraKubelet, tmp_path: Path
) -> None:
    """AMD's driver reports no events: its files are read at each poll."""
    run_dra("", has_amd=True, **QUICK)
    published(cluster, 8)
    tree = AmdTree(tmp_path / "node", amd_dump.load("mi300x8"))
    watch = HealthWatch(dra_kubelet.plugin(AMD).channel)
    watch.wait_for()
    first, second = (gpu.pci_address for gpu in tree.node.gpus[:2])
    errors = tree.gpu(first) / "ras/umc_err_count"
    errors.write_text("ue: 3\nce: 0\n")
    device = name_of(cluster, first)
    watch.wait_for(**{device.replace("-", "_"): UNHEALTHY})
    assert "uncorrectable errors have risen from 0 to 3" in watch.messages[device]
    eventually(lambda: taints(cluster) == {device: [(f"{AMD}/fault", "", "NoSchedule")]})
    errors.write_text("ue: 0\nce: 0\n")  # a reset
    watch.wait_for()
    eventually(lambda: taints(cluster) == {})
    lost = name_of(cluster, second)
    tree.lose_gpu(second)
    watch.wait_for(**{lost.replace("-", "_"): UNHEALTHY})
    gone = (f"{AMD}/gpu-lost", "", "NoSchedule")
    eventually(lambda: taints(cluster).keys() == {lost} and gone in taints(cluster)[lost])


def test_metrics_count_unhealthy_devices(driver: DraProcess, watch: HealthWatch) -> None:
    def count(state: str) -> str:
        name = f'gpuhook_devices{{resource="nvidia.com/gpu",state="{state}"}} '
        return driver.metrics().partition(name)[2].partition("\n")[0]

    eventually(lambda: (count("healthy"), count("unhealthy")) == ("8.0", "0.0"))
    fail(driver, 2, 79)
    watch.wait_for(gpu_2=UNHEALTHY)
    eventually(lambda: (count("healthy"), count("unhealthy")) == ("7.0", "1.0"))
    recover(driver, 2)
    eventually(lambda: count("unhealthy") == "0.0")
