# SPDX-License-Identifier: Apache-2.0
"""A healthy node of a cluster: kubelet, NVIDIA's device plugin with a configuration, API server."""

from __future__ import annotations

import json
import os
import stat
from typing import Any

from gpuhook.node_facts.sources import node_readings
from tests.doctor.case import FaultCase, part

KUBELET = "/var/lib/kubelet"
PLUGINS = f"{KUBELET}/device-plugins"
CHECKPOINT = f"{PLUGINS}/kubelet_internal_checkpoint"
UID = "0c0ffee0-1111-4222-8333-444455556666"
CONFIG = f"{KUBELET}/pods/{UID}/volumes/kubernetes.io~configmap/available-configs/default"
LOG = (
    f"/var/log/pods/nvidia-device-plugin_nvdp-nvidia-device-plugin-x7k2p_{UID}"
    "/nvidia-device-plugin-ctr/0.log"
)
NODE = "gpu-node-1"
CONFIGURATION = """\
version: v1
flags:
  migStrategy: {mig}
sharing:
  timeSlicing:
    resources:
    - name: nvidia.com/gpu
      replicas: 4
"""
K3S_MANIFEST = "/var/lib/rancher/k3s/server/manifests/runtimes.yaml"


def add_socket(case: FaultCase, path: str) -> None:
    """Make a socket without a listener."""
    os.mknod(case.path(path), stat.S_IFSOCK | 0o755)


def processes(case: FaultCase) -> list[dict[str, Any]]:
    """Return the processes of the node; the caller may change them."""
    found: list[dict[str, Any]] = case.readings.setdefault(node_readings.PROCESSES, [])
    return found


def units(case: FaultCase) -> dict[str, Any]:
    """Return the units of the node; the caller may change them."""
    found: dict[str, Any] = case.readings.setdefault(node_readings.UNITS, {})
    return found


def process(pid: int, name: str, *argv: str) -> dict[str, Any]:
    """Return a process in the form of a reading."""
    return {"pid": pid, "name": name, "argv": [*argv], "started": 1.0e9, "exe": argv[0]}


def write_checkpoint(case: FaultCase, registered: dict[str, list[str]]) -> None:
    """Write the kubelet's checkpoint of devices."""
    data = {"PodDeviceEntries": None, "RegisteredDevices": registered}
    case.write(CHECKPOINT, json.dumps({"Data": data, "Checksum": 1}), 0o600)


def offered(case: FaultCase) -> dict[str, list[str]]:
    """Return the resources that NVIDIA's plugin registers."""
    found: dict[str, list[str]] = {}
    for gpu in case.node.node.gpus:
        if gpu.mig_mode != "enabled":
            ids = [f"{gpu.uuid}::{replica}" for replica in range(4)]
            found.setdefault("nvidia.com/gpu", []).extend(ids)
        for instance in gpu.instances:
            name = f"nvidia.com/mig-{(instance.profile or '').replace('+', '.')}"
            found.setdefault(name, []).append(instance.uuid)
    return found


@part
def a_node_of_a_cluster(case: FaultCase) -> None:
    """Add the kubelet, the device plugin and the API server's objects."""
    add_socket(case, f"{PLUGINS}/kubelet.sock")
    add_socket(case, f"{KUBELET}/pod-resources/kubelet.sock")
    case.write(f"{KUBELET}/config.yaml", "kind: KubeletConfiguration\n")
    resources = offered(case)
    for name in resources:
        add_socket(case, f"{PLUGINS}/nvidia-{name.partition('/')[2]}.sock")
    write_checkpoint(case, resources)
    has_mig = any(gpu.mig_mode == "enabled" for gpu in case.node.node.gpus)
    has_whole = "nvidia.com/gpu" in resources
    text = CONFIGURATION.format(mig="mixed" if has_mig else "none")
    case.write(CONFIG, text if has_whole else text.partition("sharing:")[0])
    case.path(f"{KUBELET}/pods/{UID}/containers/nvidia-device-plugin-ctr/0").mkdir(parents=True)
    case.write(LOG, "2026-11-01T10:00:00.1Z stderr F I1101 Registered device plugin\n")
    processes(case).extend(
        [
            process(900, "kubelet", "/usr/bin/kubelet", "--config=/var/lib/kubelet/config.yaml"),
            process(1900, "nvidia-device-p", "nvidia-device-plugin"),
        ]
    )
    units(case)["kubelet.service"] = {
        "load": "loaded",
        "active": "active",
        "result": "success",
        "enabled": "enabled",
    }
    counts = {name: str(len(ids)) for name, ids in resources.items()}
    case.readings[node_readings.API] = {
        "source": "kubectl",
        "node": {
            "name": NODE,
            "labels": {
                "nvidia.com/gpu.count": str(len(case.node.node.gpus)),
                "nvidia.com/cuda.driver-version.full": case.node.node.driver.version,
            },
            "capacity": {"cpu": "8", **counts},
            "allocatable": {"cpu": "8", **counts},
            "conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}
            ],
            "unschedulable": False,
            "kubelet": "v1.32.1",
            "engine": "containerd://1.7.25",
        },
        "runtimeClasses": [{"name": "nvidia", "handler": "nvidia"}],
        "daemonSets": [
            {
                "namespace": "nvidia-device-plugin",
                "name": "nvdp-nvidia-device-plugin",
                "wanted": 1,
                "ready": 1,
                "images": ["nvcr.io/nvidia/k8s-device-plugin:v0.17.2"],
                "runtimeClass": "nvidia",
            }
        ],
        "refused": {},
    }
