# SPDX-License-Identifier: Apache-2.0
"""A simulated node with AMD GPUs: /sys, /proc and, on request, /dev below a directory.

The tree has what the kernel would show of the facts of an AmdNode, such as that of a profile.
Reading it gives the same facts. `python -m tests.simulated.amd_tree DIR --profile mi300x8` makes
one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import stat
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import (
    AmdDeviceNode,
    AmdDriver,
    AmdNode,
)
from tests.simulated import amd_kfd_tree
from tests.simulated.amd_kfd_tree import USUAL, Oddities
from tests.simulated.sysfs_files import link, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu

DRM_MAJOR, KFD_MAJOR = 226, 238
BLOCKS = ("umc", "gfx", "sdma", "mmhub", "pcie_bif", "hdp", "xgmi_wafl")
_EXTRA_PARTITIONS = 7  # that the driver prepares for each GPU which can be partitioned
_FIRMWARE = ("mec", "rlc", "sdma", "smc", "sos", "vcn")


@dataclass(frozen=True)
class AmdTree:
    """The tree below `root`, and the facts that it was built from."""

    root: Path
    node: AmdNode

    @property
    def options(self) -> list[str]:
        """The options that point gpuhook's commands at this node."""
        return [f"--host-root={self.root}", f"--dev-root={self.root}"]

    def gpu(self, address: str) -> Path:
        """Return the directory of a PCI device."""
        return self.root / "sys/devices" / f"pci{address[: address.index(':') + 3]}" / address

    def partition(self, name: str) -> Path:
        """Return the directory of a partition's platform device, by its id."""
        place = self.root / "sys/devices/platform"
        dotted = place / name.replace("xcp_", "xcp.")
        return dotted if dotted.exists() else place / name

    @property
    def kfd(self) -> Path:
        """The directory of KFD."""
        return self.root / "sys/devices/virtual/kfd/kfd"

    def kfd_node(self, render_minor: int) -> Path:
        """Return the directory of a device's node in KFD's topology."""
        return amd_kfd_tree.node_directory(self.kfd / "topology", render_minor)

    def device_node(self, device: AmdDeviceNode) -> Path:
        """Return the path below the tree's /dev."""
        return self.root / device.path.lstrip("/")

    def generation(self, number: int) -> None:
        """Set the count of the changes of KFD's topology."""
        write(self.kfd / "topology/generation_id", number)

    def lose_gpu(self, address: str) -> None:
        """Take a GPU from the driver, with its DRM and KFD nodes, as after an unbind."""
        gpu = next(gpu for gpu in self.node.gpus if gpu.pci_address == address)
        for device in gpu.devices:
            shutil.rmtree(self.kfd_node(device.render_minor))
            self.lose_drm(device)
        (self.root / "sys/module/amdgpu/drivers/pci:amdgpu" / address).unlink()
        generation = self.kfd / "topology/generation_id"
        self.generation(int(generation.read_text("ascii")) + 1)

    def lose_drm(self, device: AmdDevice) -> None:
        """Remove the DRM nodes of a device from /sys."""
        place = self.partition(device.id) if "xcp" in device.id else self.gpu(device.id)
        shutil.rmtree(place / "drm", ignore_errors=True)
        for path in (device.render_path, device.card_path):
            if path is not None:
                (self.root / "sys/class/drm" / Path(path).name).unlink(missing_ok=True)

    def swap_drm(self, first: str, second: str) -> None:
        """Exchange the DRM nodes of two whole GPUs, as a reload of the driver may do."""
        places = [self.gpu(first) / "drm", self.gpu(second) / "drm"]
        places[0].rename(places[0].with_name("old"))
        places[1].rename(places[0])
        places[0].with_name("old").rename(places[1])
        for place in places:
            for node in place.iterdir():
                for name in (node / "device", self.root / "sys/class/drm" / node.name):
                    name.unlink()
                link(node / "device", place.parent)
                link(self.root / "sys/class/drm" / node.name, node)

    def process(self, pid: int, memory: Mapping[int, int]) -> None:
        """Add a process that uses KFD: bytes of memory by the kfd_id of a device."""
        place = self.kfd / "proc" / str(pid)
        write(place / "pasid", 32768 + pid % 1000)
        for kfd_id, used in memory.items():
            write(place / f"vram_{kfd_id}", used)
            write(place / f"sdma_{kfd_id}", 0)
            write(place / f"stats_{kfd_id}/cu_occupancy", 0)
            write(place / f"stats_{kfd_id}/evicted_ms", 0)


def build(
    root: str | Path,
    node: AmdNode | str,
    *,
    real_nodes: bool = False,
    kfd_major: int | None = None,
    odd: Oddities = USUAL,
) -> AmdTree:
    """Build the tree of `node`, or of the profile with this name, below `root`.

    `real_nodes` makes the device nodes of `node`, or those of all its devices if it has none, in
    dev; that needs root. The tree can be built in a directory that has the tree of another vendor.
    """
    facts = _profile(node) if isinstance(node, str) else node
    tree = AmdTree(Path(root).resolve(), facts)
    nodes = facts.device_nodes or _default_nodes(facts)
    major = kfd_major or next((one.major for one in nodes if one.path == KFD), KFD_MAJOR)
    if facts.driver is not None:
        _write_driver(tree, facts.driver, major)
        _write_gpus(tree, odd)
        if odd.has_kfd:
            amd_kfd_tree.write_topology(tree, odd)
    if real_nodes:
        for one in nodes:
            _make_node(tree.device_node(one), one, major if one.path == KFD else one.major)
    return tree


@cache
def _profile(name: str) -> AmdNode:
    """Return the facts of a profile; nothing changes them."""
    return amd_dump.load(name)


def in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary directory for a tree: it has thousands of files, which disks dislike."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(dir=memory if os.path.isdir(memory) else None)


def _default_nodes(node: AmdNode) -> tuple[AmdDeviceNode, ...]:
    found = [AmdDeviceNode(KFD, KFD_MAJOR, 0)]
    for _, device in node.devices():
        if device.card_path is not None and device.card_minor is not None:
            found.append(AmdDeviceNode(device.card_path, DRM_MAJOR, device.card_minor))
        found.append(AmdDeviceNode(device.render_path, DRM_MAJOR, device.render_minor))
    return tuple(found)


def _make_node(path: Path, device: AmdDeviceNode, major: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(path, stat.S_IFCHR, os.makedev(major, device.minor))
    os.chown(path, device.uid, device.gid)
    path.chmod(device.mode)


def _write_driver(tree: AmdTree, driver: AmdDriver, kfd_major: int) -> None:
    module = tree.root / "sys/module/amdgpu"
    (module / "drivers/pci:amdgpu").mkdir(parents=True)
    write(module / "initstate", "live")
    for name in ("version", "srcversion"):
        value = getattr(driver, name)
        if value is not None:
            write(module / name, value)
    if driver.kernel is not None:
        write(tree.root / "proc/sys/kernel/osrelease", driver.kernel)
    devices = tree.root / "proc/devices"
    old = devices.read_text("ascii") if devices.exists() else "Character devices:\n  1 mem\n"
    added = f"{DRM_MAJOR} drm\n{kfd_major:3} kfd\n"
    head, block, rest = old.partition("\nBlock devices:\n")
    devices.parent.mkdir(parents=True, exist_ok=True)
    devices.write_text(head + added + block + rest, encoding="ascii")


def _write_gpus(tree: AmdTree, odd: Oddities) -> None:
    used = {device.render_minor for _, device in tree.node.devices()}
    ids = {device.id for _, device in tree.node.devices()}
    if odd.bmc_card is not None:
        bmc = tree.gpu("0000:02:00.0")
        write(bmc / "vendor", "0x1a03")
        _write_drm(tree, bmc, None, odd.bmc_card)
    number = 0
    for gpu in tree.node.gpus:
        _write_gpu(tree, gpu, odd)
        if not gpu.compute_modes:
            continue
        first = gpu.devices[0] if gpu.devices else None
        for place in range(1, _EXTRA_PARTITIONS + 1):
            name = f"amdgpu_xcp_{number}"
            number += 1
            if first is None or name in ids or not odd.has_dead_partitions:
                continue
            minor = first.render_minor + place
            if minor not in used:
                used.add(minor)
                card = None if first.card_minor is None else first.card_minor + place
                _write_partition(tree, name, minor, card, odd)


def _write_gpu(tree: AmdTree, gpu: AmdGpu, odd: Oddities) -> None:
    place = tree.gpu(gpu.pci_address)
    for name, value in _files(gpu, odd.used_memory.get(gpu.pci_address, 0)).items():
        if value is not None:
            write(place / name, value)
    for block in BLOCKS:
        errors = odd.errors.get(gpu.pci_address, {}).get(block, (0, 0))
        write(place / f"ras/{block}_err_count", "ue: {}\nce: {}".format(*errors))
    (place / "ras/gpu_vram_bad_pages").touch()
    if gpu.name and not gpu.serial:
        # A board without a description of itself: libdrm's list has its name.
        ids = tree.root / "usr/share/libdrm/amdgpu.ids"
        ids.parent.mkdir(parents=True, exist_ok=True)
        with ids.open("a", encoding="ascii") as stream:
            board = (gpu.device_id or "").upper(), (gpu.revision or "").upper()
            stream.write(",\t".join((*board, gpu.name)) + "\n")
    link(tree.root / "sys/module/amdgpu/drivers/pci:amdgpu" / gpu.pci_address, place)
    link(tree.root / "sys/bus/pci/devices" / gpu.pci_address, place)
    if not gpu.devices and gpu.trouble and "KFD" in gpu.trouble:
        _write_drm(tree, place, 250 - gpu.index, 120 - gpu.index)
    for device in gpu.devices:
        if device.id != gpu.pci_address:
            _write_partition(tree, device.id, device.render_minor, device.card_minor, odd)
        elif gpu.pci_address not in odd.without_drm:
            _write_drm(tree, place, device.render_minor, device.card_minor)


def _files(gpu: AmdGpu, used: int) -> dict[str, object]:
    """Return the content of the files of a PCI device; None: it has no such file."""
    vendor, _, model = (gpu.subsystem_id or "").partition(":")
    modes = {
        "current_compute_partition": gpu.compute_mode,
        "current_memory_partition": gpu.memory_mode,
        "available_compute_partition": ", ".join(gpu.compute_modes) or None,
        "available_memory_partition": ", ".join(gpu.memory_modes) or None,
    }
    memory = {} if gpu.vram_bytes is None else _memory_files(gpu.vram_bytes, used)
    return {
        "vendor": "0x1002",
        "class": "0x038000" if gpu.compute_modes else "0x030000",
        "device": gpu.device_id and f"0x{gpu.device_id}",
        "revision": gpu.revision and f"0x{gpu.revision}",
        "subsystem_vendor": f"0x{vendor}" if vendor else None,
        "subsystem_device": f"0x{model}" if model else None,
        "numa_node": -1 if gpu.numa_node is None else gpu.numa_node,
        "unique_id": gpu.unique_id,
        "product_name": gpu.name if gpu.serial else None,
        "serial_number": gpu.serial,
        "vbios_version": gpu.vbios,
        "gpu_busy_percent": 0,
        "mem_busy_percent": 0,
        "pcie_replay_count": 0,
        "power/runtime_status": "active",
        "hwmon/hwmon0/power1_average": 120_000_000,
        "hwmon/hwmon0/temp1_input": 41_000,
        **{f"fw_version/{name}_fw_version": "0x0000008b" for name in _FIRMWARE},
        **modes,
        **memory,
    }


def _memory_files(total: int, used: int) -> dict[str, object]:
    sizes = {"vram": (total, used), "vis_vram": (total, used), "gtt": (total // 2, 0)}
    return {
        f"mem_info_{kind}_{name}": value
        for kind, pair in sizes.items()
        for name, value in zip(("total", "used"), pair, strict=True)
    }


def _write_partition(
    tree: AmdTree, name: str, render: int, card: int | None, odd: Oddities
) -> None:
    spelled = name.replace("xcp_", "xcp.") if odd.is_dotted else name
    _write_drm(tree, tree.root / "sys/devices/platform" / spelled, render, card)


def _write_drm(tree: AmdTree, device: Path, render: int | None, card: int | None) -> None:
    for name, minor in (("renderD", render), ("card", card)):
        if minor is not None:
            place = device / "drm" / f"{name}{minor}"
            write(place / "dev", f"{DRM_MAJOR}:{minor}")
            link(place / "device", device)
            link(tree.root / "sys/class/drm" / place.name, place)
            link(tree.root / f"sys/dev/char/{DRM_MAJOR}:{minor}", place)


def main() -> None:
    """Build a tree by the command line, and print the options for gpuhook's commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory")
    parser.add_argument("--profile", default="mi300x8")
    parser.add_argument("--real-nodes", action="store_true")
    options = parser.parse_args()
    tree = build(options.directory, options.profile, real_nodes=options.real_nodes)
    print(*tree.options)


if __name__ == "__main__":
    main()
