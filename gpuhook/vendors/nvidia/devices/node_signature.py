# SPDX-License-Identifier: Apache-2.0
"""Whether a node is still what it was when it was last asked: a look at /proc, without NVML.

A driver that was upgraded, a GPU that came or went, and an instance that was made or destroyed all
show in the file systems of the kernel. The times of its entries tell an instance that was made anew
from the one before it: procfs gives an entry the time at which it was first looked at, and the
number of its inode to the next one. It may forget an entry and its time when memory is short; then
the node is asked once for nothing.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.hot.host_fingerprint import fingerprint

_DRIVER = "proc/driver/nvidia"


def signature(host_root: str, libcuda: str) -> tuple[str, ...]:
    """Return what identifies the node; two signatures are equal when nothing has changed.

    `libcuda` is the host path of the driver's libcuda file, "" where there is none.
    """
    driver = os.path.join(host_root, _DRIVER)
    return (
        fingerprint(host_root, libcuda),
        *_entries(os.path.join(driver, "gpus")),
        *_instances(os.path.join(driver, "capabilities")),
    )


def _instances(directory: str) -> list[str]:
    """Return gpu0/mig/gi1/ci0 and so on, each with its identity."""
    found = []
    for gpu in _names(directory):
        mig = os.path.join(directory, gpu, "mig")
        for gi in _names(mig):
            if gi.startswith("gi"):
                found += _entries(os.path.join(mig, gi))
    return found


def _entries(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(map(_identity, entries))
    except OSError:
        return []


def _identity(entry: os.DirEntry[str]) -> str:
    found = entry.stat(follow_symlinks=False)
    return f"{entry.path}#{found.st_ino}-{found.st_mtime_ns}"


def _names(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except OSError:
        return []
