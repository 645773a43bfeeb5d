# SPDX-License-Identifier: Apache-2.0
"""Nodes of managed clusters: EKS on Amazon Linux 2023, GKE on COS, AKS."""

from __future__ import annotations

from tests.doctor.parts.engines import CRI
from tests.doctor.real import machines
from tests.doctor.real.clusters import agent, containerd
from tests.doctor.real.machines import RealNode, cluster, install, process
from tests.doctor.real.workstations import toolkit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.case import FaultCase

_RUNTIME = '"io.containerd.runc.v2"'


def _default(name: str, table: str, version: int) -> str:
    return f"""\
version = {version}
root = "/var/lib/containerd"
state = "/run/containerd"
[{table}]
enable_cdi = true
[{table}.containerd]
default_runtime_name = "{name}"
[{table}.containerd.runtimes.{name}]
runtime_type = {_RUNTIME}
base_runtime_spec = "/etc/containerd/base-runtime-spec.json"
[{table}.containerd.runtimes.{name}.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
SystemdCgroup = true
"""


def eks(directory: Path) -> FaultCase:
    """EKS: nodeadm makes NVIDIA's runtime the only one; NVIDIA's plugin, no RuntimeClass."""
    case = machines.with_gpu(directory, layout="lib64", is_open=True)
    case.write("/etc/amazon-linux-release", "Amazon Linux release 2023\n")
    install(case, "dnf")
    table = "plugins.'io.containerd.cri.v1.runtime'"
    containerd(case, _default("nvidia", table, 3), "2.1.4")
    case.write("/etc/containerd/base-runtime-spec.json", '{"ociVersion": "1.1.0"}')
    toolkit(case, "1.18.0")
    agent(case)
    process(case, "nvidia-device-plugin", "nvidia-device-plugin")
    cluster(case, machines.registered(case))
    return case


def aks(directory: Path) -> FaultCase:
    """AKS: the same with containerd 1.7, under another name, toolkit 1.17."""
    case = machines.with_gpu(directory, version="550.144.03")
    machines.debian(case)
    containerd(case, _default("nvidia-container-runtime", CRI, 2))
    toolkit(case, "1.17.8")
    agent(case)
    process(case, "nvidia-device-plugin", "nvidia-device-plugin")
    cluster(case, machines.registered(case))
    return case


def gke(directory: Path) -> FaultCase:
    """GKE on COS: its plugin adds nodes and mounts the driver; no runtime, no CDI."""
    case = machines.with_gpu(directory, layout="gke", version="535.230.02", persistenced=False)
    case.write("/etc/os-release", "ID=cos\nNAME=Container-Optimized OS\n")
    text = f'version = 2\n[{CRI}.containerd]\ndefault_runtime_name = "runc"\n'
    text += f"[{CRI}.containerd.runtimes.runc]\nruntime_type = {_RUNTIME}\n"
    text += f"[{CRI}.containerd.runtimes.runc.options]\nSystemdCgroup = true\n"
    containerd(case, text)
    agent(case)
    root = "/var/lib/kubelet/device-plugins"
    resources = machines.registered(case, ["nvidia0"])
    case.remove(f"{root}/nvidia-gpu.sock")
    machines.socket(case, f"{root}/nvidiaGPU-1762900000.sock")
    cluster(case, resources, "gvisor")
    return case


NODES = [
    RealNode("eks-al2023", eks, ("nvidia-toolkit.images",)),
    RealNode("aks", aks, ("nvidia-toolkit.images", "host.daemon-reload")),
    RealNode("gke-cos", gke),
]
