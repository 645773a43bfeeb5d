# SPDX-License-Identifier: Apache-2.0
"""The two device nodes that let who can open them configure MIG, or monitor all of its instances.

Loaded only for a container that asks for one. Source: NVIDIA MIG User Guide, "Device Nodes and
Capabilities".
"""

from __future__ import annotations

import os
import stat

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.hot import driver_root, vocabulary

NAMES = ("config", "monitor")
MAJOR = "nvidia-caps"  # in /proc/devices
MINORS = "/proc/driver/nvidia-caps/mig-minors"
FILES = "/proc/driver/nvidia/capabilities/mig"
_MINOR, _MODE = "DeviceFileMinor", "DeviceFileMode"
_READ_AT_MOST = 1 << 20


def find(name: str, dev_root: str, host_root: str) -> tuple[str, os.stat_result]:
    """Return the path and the status of the node of `config` or `monitor`.

    Raises GH1216 if the driver knows no such thing, GH1214 if the node is missing, GH1215 if
    something else is there.
    """
    number = minor(name, host_root)
    if number is None:
        raise fault("GH1216", name=name, minors=MINORS, file=f"{FILES}/{name}")
    path = vocabulary.capability_node(number)
    place = driver_root.place(dev_root, path) or dev_root.rstrip("/") + path
    try:
        status = os.stat(place, follow_symlinks=not dev_root.rstrip("/"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise fault(
            "GH1214", path=place, name=name, reason=reason, file=f"{FILES}/{name}"
        ) from error
    wanted = major(MAJOR, host_root)
    is_right = wanted is None or status.st_rdev == os.makedev(wanted, number)
    if not (stat.S_ISCHR(status.st_mode) and is_right):
        raise fault("GH1215", path=place, major="?" if wanted is None else wanted, minor=number)
    return path, status


def minor(name: str, host_root: str) -> int | None:
    """Return the minor of a node, None if the driver names none: mig-minors counts."""
    for line in _lines(host_root, MINORS):
        parts = line.split()
        if len(parts) == 2 and parts[0] == name and _is_number(parts[1]):
            return int(parts[1])
    found = _fact(_MINOR, name, host_root)
    return int(found) if _is_number(found) else None


def mode(name: str, host_root: str) -> int | None:
    """Return the permission bits that the driver gives a node, None if it does not say."""
    found = _fact(_MODE, name, host_root)
    return int(found) if _is_number(found) and int(found) <= 0o777 else None


def major(name: str, host_root: str) -> int | None:
    """Return the major of a character device in /proc/devices, None if it is not there."""
    for line in _lines(host_root, "/proc/devices"):
        if line.startswith("Block"):
            break
        parts = line.split()
        if len(parts) == 2 and parts[1] == name and _is_number(parts[0]):
            return int(parts[0])
    return None


def _fact(key: str, name: str, host_root: str) -> str:
    for line in _lines(host_root, f"{FILES}/{name}"):
        found, _, value = line.partition(":")
        if found.strip() == key:
            return value.strip()
    return ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7 and int(text) < 1 << 20


def _lines(host_root: str, path: str) -> list[str]:
    try:
        with open(host_root.rstrip("/") + path, "rb") as file:
            return file.read(_READ_AT_MOST).decode("utf-8", "replace").splitlines()
    except OSError:
        return []
