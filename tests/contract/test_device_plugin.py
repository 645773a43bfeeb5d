# SPDX-License-Identifier: Apache-2.0
"""The device plugin as a process on a node, with a kubelet: scenarios of its users."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.kubelet.kubelet import AdmissionError, Kubelet
from tests.kubelet.process import GPU, OPERATOR, TIME_SLICING, plugin
from tests.kubelet.running import Run
from tests.simulated import stub_events
from tests.simulated.node import make_node
from tests.waiting import eventually


def test_seed_configuration_offers_four_replicas_of_a_t4(run: Run, kubelet: Kubelet) -> None:
    """The ConfigMap and the environment of the seeds, on a g4dn.xlarge."""
    running = run(**OPERATOR)
    kubelet.wait_for_devices(GPU, 4)
    uuid = running.node.node.gpus[0].uuid
    assert list(kubelet.devices(GPU)) == [f"{uuid}::{n}" for n in range(4)]
    pods = [kubelet.allocate(GPU, 1) for _ in range(2)]
    assert {pod.response.envs["NVIDIA_VISIBLE_DEVICES"] for pod in pods} == {uuid}
    assert [pod.response.envs["GPUHOOK_REPLICAS"] for pod in pods] == [f"{uuid}::0", f"{uuid}::1"]
    for pod in pods:
        paths = [device.container_path for device in pod.response.devices]
        assert "/dev/nvidia0" in paths
        assert len(paths) == len(set(paths))
    assert running.stop() == 0


def test_ten_pods_are_spread_over_four_gpus(run: Run, kubelet: Kubelet) -> None:
    facts = dump_file.load("h100x8")
    four = replace(facts, gpus=facts.gpus[:4])
    run(four, TIME_SLICING.replace("replicas: 4", "replicas: 3"))
    kubelet.wait_for_devices(GPU, 12)
    assigned = [kubelet.allocate(GPU, 1).response.envs["NVIDIA_VISIBLE_DEVICES"] for _ in range(10)]
    counts = sorted(assigned.count(uuid) for uuid in set(assigned))
    assert counts == [2, 2, 3, 3]  # spread over all four


def test_xid_marks_each_replica_of_one_gpu(run: Run, kubelet: Kubelet) -> None:
    running = run("h100x8")
    kubelet.wait_for_devices(GPU, 32)
    broken = str(running.node.node.gpus[2].uuid)
    stub_events.say(running.node, broken, "recovery 1")
    running.wait_for_log(event="offered")
    stub_events.inject_xid(running.node, broken, 79)
    kubelet.wait_for_devices(GPU, 28, 4)
    bad = {name for name, device in kubelet.devices(GPU).items() if device.health != "Healthy"}
    assert bad == {f"{broken}::{n}" for n in range(4)}
    line = running.wait_for_log(reason="GpuUnhealthy", gpu=broken)
    assert "XID 79" in line["event"]
    assert "nvidia.com/gpu 4 of 32" in line["event"]


def test_invalid_configuration_keeps_the_previous_one(run: Run, kubelet: Kubelet) -> None:
    """A-8: neither a write nor SIGHUP with an invalid file removes a device."""
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    registered = len(kubelet.registrations)
    running.configure(TIME_SLICING.replace("replicas: 4", "replicas: none"))
    line = running.wait_for_log(reason="ConfigRefused")
    assert "replicas" in line["event"]
    running.signal(signal.SIGHUP)
    kubelet.allocate(GPU, 1)
    assert kubelet.allocatable(GPU) == 4
    assert 'gpuhook_config_reloads_total{outcome="refused"}' in running.metrics()
    running.configure(TIME_SLICING.replace("replicas: 4", "replicas: 2"))
    kubelet.wait_for_devices(GPU, 2)
    assert len(kubelet.registrations) == registered  # an update of the list is sufficient


def test_unreadable_config_label_is_reported(run: Run, kubelet: Kubelet, tmp_path: Path) -> None:
    """After an edit of the ConfigMap, a pod without a token cannot read the node's label."""
    configurations = tmp_path / "configurations"
    configurations.mkdir()
    (configurations / "default").write_text(TIME_SLICING)
    env = {
        "CONFIG_FILE": "",
        "CONFIG_FILE_SRCDIR": str(configurations),
        "KUBERNETES_SERVICE_HOST": "192.0.2.1",
        "NODE_NAME": "node-1",
    }
    running = run(**env)
    kubelet.wait_for_devices(GPU, 4)
    assert not [line for line in running.log() if line.get("reason") == "LabelNotRead"]
    (configurations / "whole").write_text("version: v1\n")
    warning = running.wait_for_log(reason="LabelNotRead")
    assert warning["code"] == "GH1807"
    assert "nvidia.com/device-plugin.config" in warning["event"]
    assert "apiAccess.nodeConfig" in warning["hint"]
    kubelet.wait_for_devices(GPU, 4)


def test_request_for_two_replicas_is_refused_with_a_reason(run: Run, kubelet: Kubelet) -> None:
    text = TIME_SLICING.replace(
        "timeSlicing:\n", "timeSlicing:\n    failRequestsGreaterThanOne: true\n"
    )
    run(text=text)
    kubelet.wait_for_devices(GPU, 4)
    with pytest.raises(AdmissionError, match="GH1852"):
        kubelet.allocate(GPU, 2)
    kubelet.allocate(GPU, 1)


def test_renamed_resource_replaces_the_old_one(run: Run, kubelet: Kubelet) -> None:
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    text = TIME_SLICING.replace("timeSlicing:\n", "timeSlicing:\n    renameByDefault: true\n")
    running.configure(text)
    kubelet.wait_for_devices(f"{GPU}.shared", 4)
    kubelet.wait_for(lambda: kubelet.capacity(GPU) == 0, "no GPU under the old name")


def test_missing_driver_ends_the_plugin_with_an_error(run: Run, tmp_path: Path) -> None:
    running = run(GPUHOOK_DRIVER_ROOT=str(tmp_path))
    assert running.ended() == 1
    assert any("GH1200" in line.get("text", "") for line in running.log())


def test_plugin_waits_for_a_missing_driver(run: Run, kubelet: Kubelet) -> None:
    running = run(FAIL_ON_INIT_ERROR="false")
    kubelet.wait_for_devices(GPU, 4)
    assert running.stop() == 0
    stub_events.take_away(running.node)
    running.start()
    running.wait_for_log(reason="NotOffered")
    stub_events.bring_back(running.node)
    kubelet.wait_for_devices(GPU, 4)


def test_hanging_driver_does_not_prevent_the_end(
    run: Run, kubelet: Kubelet, tmp_path: Path
) -> None:
    """SIGTERM ends the plugin during the first discovery and during a later one."""
    running = run()
    kubelet.wait_for_devices(GPU, 4)
    nvml = Path(running.node.nvml_profile).with_name("libnvidia-ml.so.1").resolve()
    mark = tmp_path / "hangs"
    source = f"""
        #include <fcntl.h>
        #include <unistd.h>
        int nvmlInitWithFlags(unsigned flags)
        {{
            close(open("{mark}", O_CREAT | O_WRONLY, 0600));
            for (;;)
                pause();
        }}
    """
    new = tmp_path / "hanging.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(new)]
    subprocess.run(command, input=source.encode(), check=True)
    new.rename(nvml)
    running.signal(signal.SIGHUP)
    eventually(mark.exists, "a look that hangs")
    kubelet.allocate(GPU, 1)
    assert running.stop() == 0
    mark.unlink()
    running.start()
    eventually(mark.exists, "a look that hangs")
    assert running.stop() == 0


def test_completed_driver_installation_is_detected(tmp_path: Path, kubelet: Kubelet) -> None:
    """A driver is installed file by file, and no file in /proc shows when it is complete."""
    node = make_node(tmp_path / "node", "t4")
    files = Path(str(node.driver_root))
    (libcuda,) = [path for path in files.rglob("libcuda.so.*.*") if not path.is_symlink()]
    moved = tmp_path / "libcuda"
    libcuda.rename(moved)
    env = {"DEVICE_LIST_STRATEGY": "host-files", "GPUHOOK_HEALTH_POLL_INTERVAL": "200ms"}
    with plugin(tmp_path / "plugin", node, kubelet, TIME_SLICING, env):
        kubelet.wait_for_devices(GPU, 0, 4)
        moved.rename(libcuda)
        kubelet.wait_for_devices(GPU, 4)
        mounts = kubelet.allocate(GPU, 1).response.mounts
    assert "/usr/local/nvidia/lib64/libcuda.so.1" in {mount.container_path for mount in mounts}
