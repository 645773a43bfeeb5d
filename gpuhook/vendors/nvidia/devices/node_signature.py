# SPDX-License-Identifier: Apache-2.0
"""Whether a node has changed since it was last read: a look at /proc, without NVML.

An upgraded driver, an added or removed GPU, and a created or destroyed instance all show in the
kernel's file systems. The times of the entries distinguish an instance from an earlier one with the
same name: procfs sets the time of an entry at its first access, and may reuse the inode number. If
procfs drops an entry for lack of memory, its time changes; then the node is read once more than
necessary.
"""

from __future__ import annotations

import os
from glob import escape, glob

from gpuhook.vendors.nvidia.hot.host_fingerprint import fingerprint

_DRIVER = "proc/driver/nvidia"
_PCI_VENDOR = "0x10de"


def signature(host_root: str, libcuda: str) -> tuple[str, ...]:
    """Return the identity of the node; two signatures are equal if nothing has changed.

    `libcuda` is the host path of the driver's libcuda file, "" if there is none.
    """
    driver = os.path.join(host_root, _DRIVER)
    instances = glob(os.path.join(escape(driver), "capabilities/*/mig/gi*"))
    return (
        fingerprint(host_root, libcuda),
        *_entries(os.path.join(driver, "gpus")),
        *(one for path in sorted(instances) for one in _entries(path)),
    )


def has_hardware(host_root: str) -> bool:
    """Return whether the node has a PCI device of NVIDIA, or a loaded driver."""
    devices = os.path.join(escape(host_root), "sys/bus/pci/devices/*/vendor")
    return os.path.isdir(os.path.join(host_root, _DRIVER)) or any(map(_is_nvidia, glob(devices)))


def _is_nvidia(path: str) -> bool:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(16).strip() == _PCI_VENDOR
    except (OSError, ValueError):
        return False


def _entries(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(map(_identity, entries))
    except OSError:
        return []


def _identity(entry: os.DirEntry[str]) -> str:
    found = entry.stat(follow_symlinks=False)
    return f"{entry.path}#{found.st_ino}-{found.st_mtime_ns}"
