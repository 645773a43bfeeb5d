# SPDX-License-Identifier: Apache-2.0
"""The device plugin in its pod, with the capabilities, seccomp profile and mounts of the chart."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

from tests.contract.plugin_pod import plugin_pod
from tests.contract.pod_container import status
from tests.kubelet import config_map
from tests.kubelet.pod_resources import pod
from tests.kubelet.process import GPU, TIME_SLICING
from tests.simulated import extra_nodes, stub_events
from tests.simulated.node import make_node
from tests.waiting import eventually

FEATURES = "etc/kubernetes/node-feature-discovery/features.d/gfd"
MAP = {"config": {"map": config_map.data()}}


def test_plugin_has_the_rights_of_its_manifest_and_works(short_path: Path) -> None:
    """It registers, allocates, writes specs and labels, reports faults, reloads and ends."""
    node = make_node(short_path / "n", "t4")
    extra_nodes.add(node.host_root)
    values = {**MAP, "deviceListStrategy": ["envvar", "cdi-annotations"], "gdsEnabled": True}
    with plugin_pod(short_path, node, values, configs=config_map.data()) as running:
        running.kubelet.wait_for_devices(GPU, 4)
        fields = status(running.container.pid)
        assert {fields[name] for name in ("CapEff", "CapPrm", "CapBnd")} == {"0" * 16}
        assert (fields["NoNewPrivs"], fields["Seccomp"]) == ("1", "2")

        (unit,) = running.kubelet.allocate(GPU, 1).ids
        running.pods.pods = [pod("default", "gpu-test-1", "main", GPU, [unit])]
        assert (running.host / "var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json").is_file()
        storage = running.host / "var/run/cdi/k8s.device-plugin.nvidia.com-gds.json"
        (device,) = json.loads(storage.read_text())["devices"]
        mounts = [one["hostPath"] for one in device["containerEdits"]["mounts"]]
        assert mounts == ["/run/udev", "/etc/cufile.json"]
        features = running.host / FEATURES
        eventually(features.exists, "labels")  # another thread writes them
        assert "nvidia.com/gpu.replicas=4\n" in features.read_text()
        assert "gpuhook_replica_holder{" in running.process.metrics()

        running.configs.publish(default=TIME_SLICING.replace("replicas: 4", "replicas: 2"))
        running.kubelet.wait_for_devices(GPU, 2)
        running.kubelet.restart()
        running.kubelet.wait_for_devices(GPU, 2)

        uuid = str(node.node.gpus[0].uuid)
        stub_events.say(node, uuid, "recovery 1")
        stub_events.inject_xid(node, uuid, 79)
        running.kubelet.wait_for_devices(GPU, 0, 2)
        line = running.process.wait_for_log(reason="GpuUnhealthy")
        assert line["pods"] == ["default/gpu-test-1"]
        assert any((running.host / "run/gpuhook").iterdir())  # its state remains after it ends
        assert running.process.stop() == 0
        assert running.denials() == []


# Writes into the node's file systems, and connects to its engine, as root without a capability.
ESCAPE = """
import os, socket, sys
for path in sys.argv[2:]:
    try:
        open(path, "w").close()
        print("wrote", path)
    except OSError as error:
        print("kept", path, error.strerror)
client = socket.socket(socket.AF_UNIX)
try:
    client.connect(sys.argv[1])
    print("connected", sys.argv[1])
except OSError as error:
    print("no engine", error.strerror)
"""


def test_plugin_cannot_write_into_the_node(short_path: Path) -> None:
    """A read-only mount of the node's / leaves the mounts below it writable: /dev, /proc, /run.

    A process of root without a capability may write to those, and connect to the engine's socket.
    """
    node = make_node(short_path / "n", "t4")
    host = Path(node.host_root)
    others = ("dev", "proc", "sys", "run", "var")
    for name in others:  # each is a mount, as on a node
        (host / name).mkdir(exist_ok=True)
        subprocess.run(["mount", "--bind", host / name, host / name], check=True)
    (host / "run/containerd").mkdir()
    try:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.bind(str(host / "run/containerd/c.sock"))
            engine.listen()
            with plugin_pod(short_path, node, MAP, configs=config_map.data()) as running:
                running.kubelet.wait_for_devices(GPU, 4)
                words = ["/driver-root/run/containerd/c.sock"]
                words += [f"/driver-root/{name}/canary" for name in ("", *others)]
                done = running.container.call("exec", sys.executable, "-c", ESCAPE, *words)
        assert done.rc == 0, done
        assert "connected" not in done.stdout
        assert [path for name in ("", *others) if (path := host / name / "canary").exists()] == []
    finally:
        for name in others:
            subprocess.run(["umount", "--lazy", host / name], check=True)
