# SPDX-License-Identifier: Apache-2.0
"""A simulated Jetson below a directory: NVIDIA's CSV files, libraries, links, device nodes.

All device nodes are real, with numbers that no driver here has: opening one returns ENXIO.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.modes.tegra.csv_files import DIRECTORY
from tests.simulated import elf_maker
from tests.simulated.node import SimulatedNode

LIBRARIES = "/usr/lib/aarch64-linux-gnu"
NVIDIA = f"{LIBRARIES}/nvidia"
NODES = {
    "/dev/nvidia0": (195, 0),
    "/dev/nvidiactl": (195, 255),
    "/dev/nvidia-modeset": (195, 254),
    "/dev/nvmap": (10, 121),
    "/dev/nvgpu/igpu0/ctrl": (505, 1),
    "/dev/nvhost-ctrl-gpu": (505, 2),
    "/dev/nvhost-gpu": (505, 3),
}
# The file names of libraries and their SONAMEs.
SONAMES = {
    f"{NVIDIA}/libcuda.so.1.1": "libcuda.so.1",
    f"{NVIDIA}/libnvrm_gpu.so": "libnvrm_gpu.so",
    f"{NVIDIA}/libnvrm_mem.so": "libnvrm_mem.so",
    f"{NVIDIA}/libnvidia-eglcore.so.540.4.0": "libnvidia-eglcore.so.540.4.0",
    f"{NVIDIA}/libEGL_nvidia.so.0": "libEGL_nvidia.so.0",
    f"{NVIDIA}/libnvidia-ptxjitcompiler.so.540.4.0": "libnvidia-ptxjitcompiler.so.1",
}
DEVICES_CSV = """\
dev, /dev/nvidia0
dev, /dev/nvidiactl
dev, /dev/nvidia-modeset
dev, /dev/nvmap
dev, /dev/nvhost-*
dev, /dev/nvgpu/igpu0/*
dev, /dev/nvsciipc
"""
DRIVERS_CSV = f"""\
# What CUDA needs
lib, {NVIDIA}/libcuda.so.1.1
lib, {NVIDIA}/libnvrm_*.so
lib, {NVIDIA}/libnvidia-*.so.540.4.0
lib, {NVIDIA}/libEGL_nvidia.so.0

sym, {LIBRARIES}/libcuda.so
sym, {NVIDIA}/libnvidia-ptxjitcompiler.so.1
lib, /etc/ld.so.conf.d/nvidia-tegra.conf
dir, /lib/firmware/tegra23x
lib, {NVIDIA}/libnvgone.so
"""
CUDA_CSV = """\
lib, /usr/local/cuda-12.6/lib64/libcudart.so.12.6.68
sym, /usr/local/cuda-12.6/lib64/libcudart.so.12
dir, /usr/src/jetson_multimedia_api
"""


def make(directory: Path, *, real_nodes: bool = True) -> SimulatedNode:
    """Make a Jetson Orin with JetPack 6 below `directory`."""
    root = directory.resolve()
    for path, soname in SONAMES.items():
        _parent(root, path)
        elf_maker.write(f"{root}{path}", soname)
    for path, target in {
        f"{NVIDIA}/libcuda.so.1": "libcuda.so.1.1",
        f"{NVIDIA}/libcuda.so": "libcuda.so.1.1",
        f"{LIBRARIES}/libcuda.so": "nvidia/libcuda.so",
        f"{NVIDIA}/libnvidia-ptxjitcompiler.so.1": "libnvidia-ptxjitcompiler.so.540.4.0",
        "/lib": "usr/lib",
        "/usr/local/cuda-12.6/lib64": "targets/aarch64-linux/lib",
        "/usr/local/cuda-12.6/targets/aarch64-linux/lib/libcudart.so.12": "libcudart.so.12.6.68",
    }.items():
        link(root, path, target)
    elf_maker.write(
        f"{root}/usr/local/cuda-12.6/targets/aarch64-linux/lib/libcudart.so.12.6.68",
        "libcudart.so.12",
    )
    for path, text in {
        "/etc/ld.so.conf.d/nvidia-tegra.conf": f"{NVIDIA}\n",
        "/usr/lib/firmware/tegra23x/nvhost.fw": "firmware\n",
        "/usr/src/jetson_multimedia_api/README": "samples\n",
        "/etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic\n",
        "/proc/sys/kernel/random/boot_id": "5b0c1e9e-0000-4000-8000-000000000002\n",
        "/proc/devices": "Character devices:\n  1 mem\n195 nvidia\n505 nvgpu\n",
        "/proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0000\0nvidia,tegra234\0",
        "/sys/module/nvgpu/refcnt": "1\n",
        "/sys/module/nvidia/version": "540.4.0\n",
        f"{DIRECTORY}/devices.csv": DEVICES_CSV,
        f"{DIRECTORY}/drivers.csv": DRIVERS_CSV,
        f"{DIRECTORY}/cuda.csv": CUDA_CSV,
    }.items():
        write(root, path, text)
    if real_nodes:
        for path, numbers in NODES.items():
            node(root, path, numbers)
    place = str(root)
    return SimulatedNode(place, place, place, Node(driver=Driver()), "", "")


def write(root: Path, path: str, text: str) -> None:
    """Write a file below `root`."""
    _parent(root, path)
    Path(f"{root}{path}").write_text(text, encoding="utf-8")


def link(root: Path, path: str, target: str) -> None:
    """Make a link below `root`."""
    _parent(root, path)
    Path(f"{root}{path}").symlink_to(target)


def node(root: Path, path: str, numbers: tuple[int, int]) -> None:
    """Make a device node below `root` with mode 0666."""
    _parent(root, path)
    os.mknod(f"{root}{path}", stat.S_IFCHR, os.makedev(*numbers))
    Path(f"{root}{path}").chmod(0o666)


def _parent(root: Path, path: str) -> None:
    Path(f"{root}{path}").parent.mkdir(parents=True, exist_ok=True)
