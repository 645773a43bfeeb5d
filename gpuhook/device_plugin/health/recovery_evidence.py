# SPDX-License-Identifier: Apache-2.0
"""Reads the evidence of a reboot, a reload of the driver, or a replugged GPU.

The inode number of a directory in sysfs is not reused while the kernel runs: a reloaded module, or
another PCI device in the same slot, has a different one. Source: the kernel's kernfs_new_node(),
which assigns the numbers cyclically.
"""

from __future__ import annotations

import os

from gpuhook.device_plugin.health.health_marks import Evidence
from gpuhook.host.hot import state

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu


def read(gpus: Iterable[Gpu] = (), root: str | None = None) -> Evidence:
    """Return the current evidence; `root` has the host's /proc and /sys."""
    top = (state.host_root() if root is None else root).rstrip("/")
    slots = {}
    for gpu in gpus:
        if gpu.uuid and gpu.pci_bus_id:
            device = _identity(f"{top}/sys/bus/pci/devices/{_sysfs_name(gpu.pci_bus_id)}")
            if device is not None:
                slots[gpu.uuid] = device
    return Evidence(
        _first_line(f"{top}/proc/sys/kernel/random/boot_id"),
        _identity(f"{top}/sys/module/nvidia"),
        slots,
    )


def _sysfs_name(bus_id: str) -> str:
    """Return NVML's "00000000:00:1E.0" in the kernel's form: "0000:00:1e.0"."""
    domain, _, rest = bus_id.partition(":")
    return f"{domain.lstrip('0').lower():0>4}:{rest.lower()}"


def _identity(path: str) -> str | None:
    try:
        return str(os.stat(path).st_ino)
    except (OSError, ValueError):  # missing, or not a valid file name
        return None


def _first_line(path: str) -> str | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip() or None
    except OSError:
        return None
