# SPDX-License-Identifier: Apache-2.0
"""The nodes with which graphics programs open a GPU: /dev/dri/card<n> and /dev/dri/renderD<n>.

/sys/bus/pci/devices/<bus id>/drm lists those of a GPU. Programs that choose a GPU by its position
look in /dev/dri/by-path, where the host has symbolic links by udev. A container gets nodes of these
names instead, with the same numbers: a spec can have nodes, while links need a hook.

Compute needs none of them, so a missing or wrong node is only a warning.
"""

from __future__ import annotations

import os
import stat

from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.devices.driver_nodes import NodesFound
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

DIRECTORY = "/dev/dri/"
BY_PATH = DIRECTORY + "by-path/"
# The kernel's name of a node without the number, and the end of udev's link to it.
_KINDS = {"card": "card", "renderD": "render"}


def names(host_root: str, pci_bus_id: str | None) -> tuple[str, ...]:
    """Return the kernel's names of the PCI device's nodes, () if it has none."""
    if pci_bus_id is None:
        return ()
    try:
        found = os.listdir(os.path.join(driver_nodes.pci_directory(host_root, pci_bus_id), "drm"))
    except OSError:
        return ()
    return tuple(sorted(name for name in found if _kind(name)))


def paths(gpu: Gpu) -> dict[str, str]:
    """Return the paths of a GPU's nodes, including those by position, each to the kernel's name."""
    found = {DIRECTORY + name: name for name in gpu.drm}
    if gpu.pci_bus_id is not None:
        place = f"{BY_PATH}pci-{driver_nodes.kernel_bus_id(gpu.pci_bus_id)}-"
        found |= {place + _KINDS[_kind(name)]: name for name in gpu.drm if _kind(name)}
    return found


def find(host_root: str, dev_root: str, gpus: tuple[Gpu, ...]) -> NodesFound:
    """Return the nodes below `dev_root` of GPUs that are not lost, and warnings about others."""
    found: list[DeviceNode] = []
    warnings: list[str] = []
    for gpu in gpus:
        if gpu.lost is not None:
            continue
        for path, name in paths(gpu).items():
            node, trouble = _look(host_root, dev_root, gpu, path, name)
            found += [] if node is None else [node]
            warnings += [trouble] if trouble and trouble not in warnings else []
    return NodesFound(tuple(found), tuple(warnings))


def _kind(name: str) -> str:
    """Return the kind of a node, its name without the number; "" for an unused kind."""
    stem = name.rstrip("0123456789")
    return stem if stem in _KINDS and stem != name else ""


def _look(
    host_root: str, dev_root: str, gpu: Gpu, path: str, name: str
) -> tuple[DeviceNode | None, str]:
    """Return (the node that containers see at `path`, "") or (None, the warning)."""
    host_path = os.path.join(dev_root, DIRECTORY.lstrip("/"), name)
    try:
        status = os.stat(host_path)
    except OSError:
        reason = "no such device node: containers with GPU {} cannot open it for graphics"
        return None, f"{host_path}: {reason.format(gpu.index)}"
    numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
    known = _numbers(host_root, gpu, name)
    if not stat.S_ISCHR(status.st_mode) or known not in (None, numbers):
        expected = "a character device" if known is None else f"the character device {known[0]}:"
        expected += "" if known is None else str(known[1])
        return None, f"{host_path} is not {expected}: left out"
    return DeviceNode.of_status(path, host_path, status), ""


def _numbers(host_root: str, gpu: Gpu, name: str) -> tuple[int, int] | None:
    place = driver_nodes.pci_directory(host_root, gpu.pci_bus_id or "0:")
    try:
        with open(os.path.join(place, "drm", name, "dev"), encoding="ascii") as file:
            major, _, minor = file.read(64).strip().partition(":")
        return int(major), int(minor)
    except (OSError, ValueError):
        return None
