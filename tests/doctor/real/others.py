# SPDX-License-Identifier: Apache-2.0
"""Nodes without a GPU of NVIDIA's that this is about, and Jetson, whose driver is another."""

from __future__ import annotations

from tests.doctor.parts.driver import add_pci_device
from tests.doctor.parts.engines import DEFAULTS, IMPORTS, RUNC
from tests.doctor.real import machines
from tests.doctor.real.clusters import agent, containerd
from tests.doctor.real.machines import RealNode, cluster, install, process, unit
from tests.doctor.real.workstations import NVIDIA, docker, toolkit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from tests.doctor.scene import Scene


def cpu_docker(directory: Path) -> Scene:
    """A machine without a GPU, with Docker."""
    scene = machines.without_gpu(directory)
    machines.debian(scene)
    docker(scene)
    return scene


def cpu_node(directory: Path) -> Scene:
    """A node of a cluster whose GPUs are elsewhere: its classes are the cluster's."""
    scene = machines.without_gpu(directory)
    machines.debian(scene)
    containerd(scene, f"version = 2\n{IMPORTS}{RUNC}")
    agent(scene)
    cluster(scene, {}, "nvidia")
    return scene


def cpu_crio(directory: Path) -> Scene:
    """The same with CRI-O."""
    scene = machines.without_gpu(directory)
    install(scene, "dnf", crio="1.33.0", crun="1.21")
    scene.write(
        "/etc/crio/crio.conf.d/10-crio.conf",
        '[crio.runtime]\ndefault_runtime = "crun"\n'
        '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n',
    )
    process(scene, "crio", "/usr/bin/crio")
    agent(scene)
    cluster(scene, {}, "nvidia")
    return scene


def amd(directory: Path) -> Scene:
    """A node with GPUs of AMD's and their device plugin."""
    scene = cpu_node(directory)
    scene.write("/sys/bus/pci/devices/0000:03:00.0/vendor", "0x1002\n")
    scene.write("/sys/bus/pci/devices/0000:03:00.0/class", "0x038000\n")
    scene.write("/etc/cdi/amd.json", '{"cdiVersion": "0.6.0", "kind": "amd.com/gpu"}')
    root = "/var/lib/kubelet/device-plugins"
    machines.socket(scene, f"{root}/amd.com_gpu")
    machines.socket(scene, f"{root}/gpu.intel.com-i915.sock")
    scene.write(
        f"{root}/kubelet_internal_checkpoint",
        '{"Data": {"PodDeviceEntries": null, "RegisteredDevices": {"amd.com/gpu":'
        ' ["0000:03:00.0"]}}, "Checksum": 1}',
    )
    cluster(scene, {"amd.com/gpu": ["0000:03:00.0"]})
    return scene


def jetson(directory: Path) -> Scene:
    """Jetson Orin with JetPack 6: no PCI GPU, libraries of Tegra's, specs and Docker."""
    scene = machines.without_gpu(directory)
    machines.debian(scene)
    scene.write("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3\n")
    scene.write("/sys/module/nvidia/version", "540.4.0\n")
    scene.write(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build\n",
    )
    scene.write("/proc/driver/nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n")
    scene.write("/proc/devices", "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n")
    libraries = "/usr/lib/aarch64-linux-gnu"
    scene.write(f"{libraries}/nvidia/libcuda.so.1.1", "")
    for place, target in ((f"{libraries}/nvidia", ""), (libraries, "nvidia/")):
        scene.path(f"{place}/libcuda.so.1").symlink_to(f"{target}libcuda.so.1.1")
    scene.write("/usr/sbin/nvidia-smi", "#!/bin/sh\n", 0o755)
    docker(scene, "27.5.1", runtimes=NVIDIA)
    toolkit(scene, "1.16.2", DEFAULTS)
    scene.write("/etc/nvidia-container-runtime/host-files-for-container.d/devices.csv", "")
    return scene


def vfio(directory: Path) -> Scene:
    """A host of virtual machines that has given its GPUs to them, with Docker for the rest."""
    scene = machines.without_gpu(directory)
    add_pci_device(scene, "0000:65:00.0", "0x030200", "vfio-pci")
    docker(scene)
    unit(scene, "libvirtd.service")
    return scene


NODES = [
    RealNode("cpu-docker", cpu_docker),
    RealNode("cpu-kubernetes", cpu_node),
    RealNode("cpu-cri-o", cpu_crio),
    RealNode("amd-kubernetes", amd),
    RealNode("jetson-orin", jetson),
    RealNode("vfio-host", vfio),
]
