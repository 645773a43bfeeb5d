# SPDX-License-Identifier: Apache-2.0
"""Nodes without an NVIDIA PCI GPU, among them a Jetson."""

from __future__ import annotations

import json

from tests.doctor.parts.amd import tools_spec
from tests.doctor.parts.driver import add_pci_device
from tests.doctor.parts.engines import DEFAULTS, IMPORTS, RUNC
from tests.doctor.parts.kubernetes import write_checkpoint
from tests.doctor.real import machines
from tests.doctor.real.clusters import agent, containerd
from tests.doctor.real.machines import RealNode, cluster, install, process, unit
from tests.doctor.real.workstations import NVIDIA, docker, toolkit
from tests.simulated import amd_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.case import FaultCase


def cpu_docker(directory: Path) -> FaultCase:
    """A machine without a GPU, with Docker."""
    case = machines.without_gpu(directory)
    machines.debian(case)
    docker(case)
    return case


def cpu_node(directory: Path) -> FaultCase:
    """A node without GPUs in a cluster with RuntimeClasses."""
    case = machines.without_gpu(directory)
    machines.debian(case)
    containerd(case, f"version = 2\n{IMPORTS}{RUNC}")
    agent(case)
    cluster(case, {}, "nvidia")
    return case


def cpu_crio(directory: Path) -> FaultCase:
    """The same with CRI-O."""
    case = machines.without_gpu(directory)
    install(case, "dnf", crio="1.33.0", crun="1.21")
    case.write(
        "/etc/crio/crio.conf.d/10-crio.conf",
        '[crio.runtime]\ndefault_runtime = "crun"\n'
        '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n',
    )
    process(case, "crio", "/usr/bin/crio")
    agent(case)
    cluster(case, {}, "nvidia")
    return case


def amd(directory: Path) -> FaultCase:
    """A node with AMD GPUs, their device plugin, and the spec of amd-ctk."""
    case = cpu_node(directory)
    tree = amd_tree.build(directory, "mi300x8", real_nodes=True)
    case.write("/etc/cdi/amd.json", json.dumps(tools_spec(case)))
    root = "/var/lib/kubelet/device-plugins"
    machines.socket(case, f"{root}/amd.com_gpu")
    machines.socket(case, f"{root}/gpu.intel.com-i915.sock")
    resources = {"amd.com/gpu": [gpu.pci_address for gpu in tree.node.gpus]}
    write_checkpoint(case, resources)
    cluster(case, resources)
    return case


def desktop(directory: Path) -> FaultCase:
    """A workstation with a Radeon, a processor's GPU, and Docker."""
    case = cpu_docker(directory)
    amd_tree.build(directory, "radeon", real_nodes=True)
    return case


def radeon(directory: Path) -> FaultCase:
    """A machine whose only GPU is too old for amdgpu."""
    case = cpu_docker(directory)
    add_pci_device(case, "0000:01:00.0", "0x030000", "radeon")
    case.write("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x1002\n")
    return case


def jetson(directory: Path) -> FaultCase:
    """Jetson Orin with JetPack 6: no PCI GPU, Tegra libraries, specs and Docker."""
    case = machines.without_gpu(directory)
    machines.debian(case)
    case.write("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3\n")
    case.write("/sys/module/nvidia/version", "540.4.0\n")
    case.write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build\n",
    )
    case.write("/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n")
    case.write("/proc/devices", "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n")
    libraries = "/usr/lib/aarch64-linux-gnu"
    case.write(f"{libraries}/nvidia/libcuda.so.1.1", "")
    for place, target in ((f"{libraries}/nvidia", ""), (libraries, "nvidia/")):
        case.path(f"{place}/libcuda.so.1").symlink_to(f"{target}libcuda.so.1.1")
    case.write("/usr/sbin/nvidia-smi", "#!/bin/sh\n", 0o755)
    docker(case, "27.5.1", runtimes=NVIDIA)
    toolkit(case, "1.16.2", DEFAULTS)
    case.write("/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv", "")
    return case


def vfio(directory: Path) -> FaultCase:
    """A host with Docker that reserves its GPUs for virtual machines."""
    case = machines.without_gpu(directory)
    add_pci_device(case, "0000:65:00.0", "0x030200", "vfio-pci")
    docker(case)
    unit(case, "libvirtd.service")
    return case


NODES = [
    RealNode("cpu-docker", cpu_docker),
    RealNode("cpu-kubernetes", cpu_node),
    RealNode("cpu-cri-o", cpu_crio),
    RealNode("amd-kubernetes", amd, ("amd.groups",)),
    RealNode("amd-desktop", desktop),
    RealNode("amd-too-old", radeon),
    RealNode("jetson-orin", jetson),
    RealNode("vfio-host", vfio),
]
