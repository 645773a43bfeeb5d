# SPDX-License-Identifier: Apache-2.0
"""The replicas of containers without a ledger entry: from the kubelet, or a variable."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpuhook.containers.hot import ledger
from gpuhook.host.hot import procfs
from tests.simulated import stub_events
from tests.simulated.node import SimulatedNode
from tests.simulated.running import Running
from tests.unit.usage.test_usage import MIB, document, node, place, ps, running, uuid

__all__ = ["node", "place", "running"]

UIDS = (
    "0a1b2c3d-0000-4000-8000-00000000000a",
    "0a1b2c3d-0000-4000-8000-00000000000b",
    "0123456789abcdef0123456789abcdef",
)
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="makes mount namespaces: needs root")


def checkpoint(place: Path, units: Sequence[str], *held: tuple[str, str, Any]) -> list[str]:
    """Write a kubelet's checkpoint: all units, and those of a pod's container (by UID)."""
    entries = [
        {
            "PodUID": uid,
            "ContainerName": container,
            "ResourceName": "nvidia.com/gpu",
            "DeviceIDs": ids,
            "AllocResp": "",
        }
        for uid, container, ids in held
    ]
    registered = {"nvidia.com/gpu": units, "x/nic": ["eth0"]}
    document = {"Data": {"PodDeviceEntries": entries or None, "RegisteredDevices": registered}}
    (place / "device-plugins").mkdir(parents=True, exist_ok=True)
    path = place / "device-plugins/kubelet_internal_checkpoint"
    path.write_text(json.dumps({**document, "Checksum": 1}))
    return ["--kubelet-root", str(place)]


def cgroup(path: str) -> dict[str, Any]:
    """Return a config.json with the node of GPU 0 and this cgroup."""
    node = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
    return {"linux": {"devices": [node], "cgroupsPath": path}}


def test_share_is_that_of_the_replicas(
    node: SimulatedNode, running: Running, short_path: Path
) -> None:
    """The kubelet's checkpoint has all replicas, and which container of a pod holds which.

    Without the device plugin's packages, which a host's installation does not have.
    """
    gpu = uuid(node)
    of_systemd = f"kubepods-burstable-pod{UIDS[0].replace('-', '_')}.slice:cri-containerd:one"
    pid = running.start("one", pod=("train-0", "ml", "main"), config=cgroup(of_systemd))
    of_files = f"/kubepods/besteffort/pod{UIDS[1]}/two"
    running.start("two", pod=("train-1", "ml", "main"), config=cgroup(of_files))
    static = f"/kubepods/pod{UIDS[2]}/three"
    running.start("three", pod=("static", "ml", "main"), config=cgroup(static))
    running.start("four", pod=("static", "ml", "side"), config=cgroup(static))
    stub_events.say(node, gpu, f"used {5000 * MIB}", f"process compute {pid} {5000 * MIB}")
    units = [f"{gpu}::{number}" for number in range(4)]
    (short_path / "pod-resources").mkdir()
    with socket.socket(socket.AF_UNIX) as pod_resources:
        pod_resources.bind(str(short_path / "pod-resources/kubelet.sock"))
    root = checkpoint(
        short_path,
        units,
        (UIDS[0], "main", {"-1": units[:1]}),
        (UIDS[1], "main", {"0": units[1:2], "1": units[2:3]}),
        (UIDS[2], "main", units[3:]),
        (UIDS[2], "other", {"0": ["eth0"], "1": None}),
    )
    packages = dict.fromkeys(["grpc", "google.protobuf"])
    without = f"import sys; sys.modules |= {packages}; from gpuhook.cli import main; main()"
    command = [sys.executable, "-c", without, "ps", "-o", "json", *root]
    command += ["--nvml-library", node.nvml_library, "--state-root", str(running.root)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert shown.stderr == ""
    found = {one["id"]: one for one in json.loads(shown.stdout)["containers"]}
    held = [found[name]["replicas"] for name in ("one", "two", "three", "four")]
    assert held == [units[:1], units[1:3], units[3:], []]
    one, two = found["one"], found["two"]
    share = one["usage"][0]["share"]
    assert share == {"bytes": 15360 * MIB // 4, "by": "replicas"}
    assert one["usage"][0]["over"]
    assert two["usage"][0]["share"]["bytes"] == 15360 * MIB // 2
    assert not two["usage"][0]["over"]


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"Data": null}',
        '{"Data": {"RegisteredDevices": [1]}}',
        '{"Data": {"RegisteredDevices": {}, "PodDeviceEntries": [{"PodUID": "x"}]}}',
        '{"Data": {"RegisteredDevices": {}, "PodDeviceEntries": [7]}}',
        "[" * 100_000,
    ],
)
def test_invalid_checkpoint_is_a_warning(
    content: str, node: SimulatedNode, running: Running, tmp_path: Path
) -> None:
    """The containers are listed without their replicas."""
    running.start("one", ["/dev/nvidia0"])
    root = checkpoint(tmp_path / "kubelet", [])
    assert ps(node, *root).stderr == ""
    (path,) = tmp_path.glob("kubelet/device-plugins/*")
    path.write_text(content)
    assert document(node, *root)["containers"][0]["replicas"] == []
    assert f"cannot read which container holds which replica: {path}: " in ps(node, *root).stderr
    path.unlink()
    assert ps(node, *root).stderr == ""


def test_replica_of_a_cdi_device(node: SimulatedNode, running: Running, tmp_path: Path) -> None:
    """Its variable requests nothing, and the device plugin's has its replicas."""
    gpu, other = uuid(node), "GPU-00000000-1111-2222-3333-444444444444"
    env = ["NVIDIA_VISIBLE_DEVICES=void", f"GPUHOOK_REPLICAS={gpu}::2,{other}::0"]
    running.start("one", ["/dev/nvidia0"], env=env)
    running.start("two", ["/dev/nvidia0"])
    root = checkpoint(tmp_path / "kubelet", [f"{gpu}::{number}" for number in range(4)])
    one = next(one for one in document(node, *root)["containers"] if one["id"] == "one")
    assert (one["gpus"], one["replicas"]) == ([gpu], [f"{gpu}::2"])
    assert one["usage"][0]["share"] == {"bytes": 15360 * MIB // 4, "by": "replicas"}


@pytest.mark.parametrize("is_recorded", [False, True])
def test_container_cannot_claim_replicas_of_others(
    node: SimulatedNode, running: Running, tmp_path: Path, is_recorded: bool
) -> None:
    """Any container can set the variable: the kubelet's checkpoint takes precedence."""
    gpu = uuid(node)
    units = [f"{gpu}::{number}" for number in range(4)]
    config = cgroup(f"/kubepods/besteffort/pod{UIDS[0]}/one")
    config["process"] = {"env": [f"GPUHOOK_REPLICAS={','.join(units)}"]}
    pid = running.start("one", pod=("train-0", "ml", "main"), config=config)
    if is_recorded:
        entry: dict[str, Any] = {"pid": pid, "started": procfs.start_time(pid)}
        entry |= {"container": "main", "nodes": ["/dev/nvidia0"], "route": "wrapper"}
        entry["devices"] = [f"nvidia.com/gpu={gpu}"]
        ledger.record(str(running.root), "one", {**entry, "replicas": units})
    root = checkpoint(tmp_path / "kubelet", units, (UIDS[0], "main", {"0": units[:1]}))
    (one,) = document(node, *root)["containers"]
    assert one["replicas"] == units[:1]
    assert one["usage"][0]["share"] == {"bytes": 15360 * MIB // 4, "by": "replicas"}
