# SPDX-License-Identifier: Apache-2.0
"""A simulated GPU node below a directory: driver tree, device nodes, /proc, /sys, and an NVML.

Everything except the GPU is real: ELF files that the loader opens, nodes of the driver's major
numbers (opening one returns ENXIO), a loader cache by ldconfig, a libnvidia-ml.so.1 that reports
the profile. `python -m tests.simulated.node DIR --profile t4 --layout debian` makes one and prints
its paths as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import stat
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from gpuhook.loader.library_directory import is_narrow
from gpuhook.vendors.nvidia.hot.host_fingerprint import fingerprint
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, DriverFile, Gpu, Link, Node
from tests.simulated import build, elf_maker, elf_maker_32, layouts, mig_node, nvml_profile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tests.simulated.layouts import Layout

_NUMA_NONE = -1


@dataclass(frozen=True)
class SimulatedNode:
    """The paths of the node, and the facts that gpuhook reads from it."""

    driver_root: str
    dev_root: str
    host_root: str
    node: Node
    nvml_library: str  # host path of the stub
    nvml_profile: str  # the stub's answers; a test may rewrite it

    @property
    def options(self) -> list[str]:
        """Return the options that point gpuhook's commands at this node."""
        roots = {"driver": self.driver_root, "dev": self.dev_root, "host": self.host_root}
        return [f"--{name}-root={path}" for name, path in roots.items()]


def make_node(
    directory: str | Path,
    profile: str | Node,
    *,
    layout: Layout = "flat",
    real_nodes: bool = True,
    memory_limits: bool = True,
) -> SimulatedNode:
    """Make the node of `profile` (a name or facts) below `directory`, and return its paths.

    Device nodes need root; without `real_nodes` the node has an empty /dev. Without
    `memory_limits`, the driver is one from before NVML had calls for them.
    """
    facts = dump_file.load(profile) if isinstance(profile, str) else profile
    host_root = Path(directory).resolve()
    driver_root = host_root / layouts.DRIVER_ROOTS[layout]
    dev_root = host_root if layout == "gke" else driver_root
    files = tuple(_placed(file, layout, driver_root) for file in facts.files)
    for file in files:
        _write_file(file)
    links = _write_links(facts, files, layout, driver_root)
    nvml = Path(_the(files, "libnvidia-ml.so.1").host_path)
    _copy(build.nvml_stub(without="" if memory_limits else "MEMORY_LIMITS"), nvml)
    stub_profile = nvml.with_name("nvml-stub.profile")
    stub_profile.write_text(nvml_profile.text(facts), encoding="utf-8")
    library_dirs = _library_dirs(files)
    if layout != "gke":
        # Debian's loader finds nvidia/current by its alternatives only.
        _write_loader_cache(driver_root, [d for d in library_dirs if "current" not in d])
    write_proc_and_sys(host_root, facts)
    devices = write_devices(dev_root, facts) if real_nodes else ()
    node = replace(
        facts,
        driver=replace(facts.driver, nvml=str(nvml)),
        gpus=tuple(map(nvml_profile.with_settings, facts.gpus)),
        files=files,
        links=links,
        library_dirs=library_dirs,
        device_nodes=devices,
        driver_root=str(driver_root),
        dev_root=str(dev_root),
        fingerprint=fingerprint(str(host_root), _the(files, "libcuda.so.1").host_path),
    )
    paths = (str(driver_root), str(dev_root), str(host_root))
    return SimulatedNode(*paths, node, str(nvml), str(stub_profile))


def _the(files: tuple[DriverFile, ...], soname: str) -> DriverFile:
    return next(file for file in files if file.soname == soname)


def _placed(file: DriverFile, layout: Layout, root: Path) -> DriverFile:
    path = layouts.placed_file(layout, file)
    return replace(file, host_path=f"{root}{path}", container_path=path)


def _library_dirs(files: tuple[DriverFile, ...]) -> tuple[str, ...]:
    libraries = [os.path.dirname(f.container_path) for f in files if f.kind == "library"]
    return tuple(dict.fromkeys(libraries))


def _write_file(file: DriverFile) -> None:
    path = Path(file.host_path)
    path.parent.mkdir(parents=True, exist_ok=True)
    if file.kind in ("library", "plugin") and is_narrow(file.container_path):
        elf_maker_32.write(path, file.soname)
    elif file.kind in ("library", "plugin"):
        elf_maker.write(path, file.soname)
    elif file.kind == "socket":
        _write_socket(path)
    elif path.name == "nvidia-smi":
        _copy(build.nvidia_smi(), path)
    elif file.kind == "binary":
        path.write_text(f"#!/bin/sh\necho {path.name}: simulated\n", encoding="utf-8")
        path.chmod(0o755)
    else:
        path.write_text(f"simulated {path.name}\n", encoding="utf-8")


def _copy(built: Path, path: Path) -> None:
    path.unlink(missing_ok=True)  # a process may run the old file: never write into it
    shutil.copy(built, path)
    path.chmod(0o755)


def _write_socket(path: Path) -> None:
    """Bind a socket by a relative name: the whole path may be longer than sun_path."""
    path.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as endpoint:
            endpoint.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)


def _write_links(
    facts: Node, files: tuple[DriverFile, ...], layout: Layout, root: Path
) -> tuple[Link, ...]:
    for original, file in zip(facts.files, files, strict=True):
        at = Path(file.host_path)
        if file.kind == "library" and file.soname not in (None, at.name):
            _link(at.with_name(str(file.soname)), at.name)
        if layout == "debian":
            for alternative in layouts.alternatives(original, file.container_path):
                chosen = f"/etc/alternatives/{alternative.name}"
                _link(Path(f"{root}{alternative.path}"), chosen)
                _link(Path(f"{root}{chosen}"), alternative.target)
    links = tuple(Link(layouts.placed(layout, link.path), link.target) for link in facts.links)
    for link in links:
        _link(Path(f"{root}{link.path}"), link.target)
    return links


def _link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_symlink():
        path.symlink_to(target)


def _write_loader_cache(root: Path, library_dirs: list[str]) -> None:
    etc = root / "etc"
    etc.mkdir(exist_ok=True)
    (etc / "ld.so.conf").write_text("\n".join(library_dirs) + "\n", encoding="utf-8")
    subprocess.run(["/sbin/ldconfig", "-r", str(root)], check=True, capture_output=True)


def write_devices(dev_root: Path, facts: Node) -> tuple[DeviceNode, ...]:
    """Make the device nodes again, and return them."""
    (dev_root / "dev").mkdir(parents=True, exist_ok=True)
    devices = []
    for device in facts.device_nodes:
        path = Path(f"{dev_root}{device.path}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        if device.host_path != device.path and device.path.startswith("/dev/dri/by-path/"):
            path.symlink_to(f"../{os.path.basename(device.host_path)}")
            devices.append(replace(device, host_path=f"{dev_root}{device.host_path}"))
            continue
        os.mknod(path, stat.S_IFCHR, os.makedev(device.major, device.minor))
        os.chown(path, device.uid, device.gid)
        path.chmod(device.mode)
        devices.append(replace(device, host_path=str(path)))
    return tuple(devices)


def write_proc_and_sys(root: Path, facts: Node) -> None:
    """Write the files; existing ones keep their inodes."""
    for name, text in proc_and_sys(facts).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for name in (name for gpu in facts.gpus for name in gpu.drm):
        number = name.removeprefix("card").removeprefix("renderD")
        _link(root / f"sys/dev/char/226:{number}/device/driver", "/sys/bus/pci/drivers/nvidia")


def proc_and_sys(facts: Node) -> dict[str, str]:
    """Return the texts of the kernel's files, by path below its root."""
    recorded = dict(part.partition("=")[::2] for part in facts.fingerprint.split(","))
    version = facts.driver.version
    majors = "".join(f"{major:3} {name}\n" for name, major in facts.majors.items())
    driver = "proc/driver/nvidia"
    texts = {
        "proc/devices": f"Character devices:\n  1 mem\n{majors}\nBlock devices:\n259 blkext\n",
        "proc/sys/kernel/random/boot_id": f"{recorded['boot']}\n",
        f"{driver}/version": f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {version}  "
        "Tue Sep 23 10:11:16 UTC 2025\nGCC version:  gcc version 11.5.0\n",
        f"{driver}/params": "ResmanDebugLevel: 4294967295\n"
        f"ModifyDeviceFiles: {int(facts.masks_params)}\nDeviceFileUID: 0\nDeviceFileGID: 0\n"
        "DeviceFileMode: 438\nInitializeSystemMemoryAllocations: 1\n",
        "sys/module/nvidia/version": f"{version}\n",
    }
    for gpu in facts.gpus:
        bus = (gpu.pci_bus_id or "00000000:00:00.0")[4:].lower()
        texts[f"{driver}/gpus/{bus}/information"] = _information(gpu, bus)
        numa = _NUMA_NONE if gpu.numa_node is None else gpu.numa_node
        texts[f"sys/bus/pci/devices/{bus}/numa_node"] = f"{numa}\n"
        for name in gpu.drm:
            number = name.removeprefix("card").removeprefix("renderD")
            texts[f"sys/bus/pci/devices/{bus}/drm/{name}/dev"] = f"226:{number}\n"
    return texts | {path.lstrip("/"): text for path, text in mig_node.files(facts).items()}


def _information(gpu: Gpu, bus: str) -> str:
    return (
        f"Model: \t\t {gpu.name}\nIRQ:   \t\t 10\nGPU UUID: \t {gpu.uuid}\n"
        f"Bus Type: \t PCIe\nBus Location: \t {bus}\nDevice Minor: \t {gpu.minor}\n"
        "GPU Excluded:\t No\n"
    )


def main() -> None:
    """Make the node of the command line and print its paths."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulated.node", description=__doc__)
    parser.add_argument("directory")
    parser.add_argument("--profile", default="t4", help="a profile's name or a dump file")
    parser.add_argument("--layout", default="flat", choices=layouts.LAYOUTS)
    parser.add_argument("--no-nodes", action="store_true", help="leave /dev empty")
    chosen = parser.parse_args()
    made = make_node(
        chosen.directory, chosen.profile, layout=chosen.layout, real_nodes=not chosen.no_nodes
    )
    paths = ("driver_root", "dev_root", "host_root", "nvml_library", "nvml_profile")
    print(json.dumps({name: getattr(made, name) for name in paths}, indent=2))


if __name__ == "__main__":
    main()
