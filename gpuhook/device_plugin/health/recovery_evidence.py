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
from gpuhook.vendors.vendor_device import bus_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def read(slots: Mapping[str, str], module: str, root: str) -> Evidence:
    """Return the current evidence; `slots` are PCI addresses by GPU UUID.

    `module` is the name of the driver's kernel module. `root` has the host's /proc and /sys.
    """
    top = root.rstrip("/")
    devices = {
        uuid: _identity(f"{top}/sys/bus/pci/devices/{bus_id(address)}")
        for uuid, address in slots.items()
        if bus_id(address)
    }
    return Evidence(
        boot_id(root),
        _identity(f"{top}/sys/module/{module}"),
        {uuid: device for uuid, device in devices.items() if device is not None},
    )


def boot_id(root: str | None = None) -> str | None:
    """Return the kernel's id of this boot, None if it cannot be read."""
    top = (state.host_root() if root is None else root).rstrip("/")
    return _first_line(f"{top}/proc/sys/kernel/random/boot_id")


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
