# SPDX-License-Identifier: Apache-2.0
"""A simulated WSL system: Windows' driver store, its front libraries, /dev/dxg.

The device node is real, with a number that no driver has: opening it returns ENXIO.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from tests.simulated import build, elf_maker
from tests.simulated.node import SimulatedNode

PACKAGE = "nv_dispi.inf_amd64_0a1b2c3d4e5f6071"
OLD_PACKAGE = "nv_dispi.inf_amd64_1111111111111111"
DXG = (10, 125)
LIB = "usr/lib/wsl/lib"
STORE = "usr/lib/wsl/drivers"
# Names of a package's libraries and their SONAMEs.
LIBRARIES = {
    "libcuda.so.1.1": "libcuda.so.1",
    "libcuda_loader.so": "libcuda.so.1",
    "libcudadebugger.so.1": "libcudadebugger.so.1",
    "libnvcuvid.so.1": "libnvcuvid.so.1",
    "libnvdxgdmal.so.1": "libnvdxgdmal.so.1",
    "libnvidia-encode.so.1": "libnvidia-encode.so.1",
    "libnvidia-ml.so.1": "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler.so.1": "libnvidia-ptxjitcompiler.so.1",
}
_PLAIN = ("nvcubins.bin", "nvoptix.bin", "nvngx_dlss.dll", "nvlddmkm.sys", "nv_dispi.inf")


def make(directory: Path, *, real_nodes: bool = True) -> SimulatedNode:
    """Make the system below `directory`."""
    root = directory.resolve()
    write_package(root, PACKAGE)
    _write_fronts(root, PACKAGE)
    for other in ("iigd_dch.inf_amd64_aa", "u0420529.inf_amd64_94ad5a6c4d1a04e2"):
        (root / STORE / other).mkdir()
        (root / STORE / other / "driver.inf").write_text("of another vendor\n")
    boot = root / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("5b0c1e9e-0000-4000-8000-000000000001\n")
    (root / "proc/devices").write_text("Character devices:\n  1 mem\n 10 misc\n")
    (root / "dev").mkdir()
    if real_nodes:
        os.mknod(root / "dev/dxg", stat.S_IFCHR | 0o666, os.makedev(*DXG))
        (root / "dev/dxg").chmod(0o666)
    place = str(root)
    return SimulatedNode(place, place, place, Node(driver=Driver()), "", "")


def write_package(root: Path, name: str, version: str = "new") -> Path:
    """Write a driver package, whose files differ from those of another `version`."""
    place = root / STORE / name
    place.mkdir(parents=True)
    for library, soname in LIBRARIES.items():
        # Bytes after the end of an ELF file have no effect.
        data = elf_maker.shared_object(soname) + f"{library} {version}\n".encode()
        (place / library).write_bytes(data)
        (place / library).chmod(0o755)
    for plain in _PLAIN:
        (place / plain).write_text(f"{plain} {version}\n")
    shutil.copy(build.nvidia_smi(), place / "nvidia-smi")
    with open(place / "nvidia-smi", "ab") as file:
        file.write(version.encode())
    (place / "nvidia-smi").chmod(0o755)
    return place


def _write_fronts(root: Path, name: str) -> None:
    """Copy the front libraries of the driver package in use to WSL's library directory."""
    package, lib = root / STORE / name, root / LIB
    lib.mkdir(parents=True)
    for source, place in (
        ("libcuda_loader.so", "libcuda.so.1.1"),
        ("libnvidia-ml_loader.so", "libnvidia-ml.so.1"),
        ("nvidia-smi", "nvidia-smi"),
    ):
        shutil.copy(package / source, lib / place)
    (lib / "libcuda.so.1").symlink_to("libcuda.so.1.1")
    (lib / "libcuda.so").symlink_to("libcuda.so.1")
    for library in ("libdxcore.so", "libd3d12.so"):
        elf_maker.write(lib / library, library)
