# SPDX-License-Identifier: Apache-2.0
"""The DRM devices of the amdgpu driver, and the device nodes of a node with AMD GPUs."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.amd.inventory.amd_inventory import AmdDeviceNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdGpu


@dataclass(frozen=True, slots=True)
class DrmDevice:
    """A DRM device; `id` is the PCI address of a GPU, or the id of a partition's device."""

    id: str
    render_minor: int
    card_minor: int | None


def devices(host_root: str) -> Iterator[DrmDevice]:
    """Yield the DRM devices of the GPUs, and of all partitions that they could have."""
    root = host_root.rstrip("/")
    places = {
        address: amd_sysfs.directory_of(root, address)
        for address in amd_sysfs.gpu_addresses(host_root)
    }
    for name in amd_sysfs.names(root + amd_sysfs.PLATFORM):
        partition = amd_sysfs.partition_id(name)
        if partition is not None:
            places[partition] = f"{root}{amd_sysfs.PLATFORM}/{name}"
    for device, place in places.items():
        names = amd_sysfs.names(place + "/drm")
        renders, cards = _minors(names, "renderD"), _minors(names, "card")
        if renders:
            yield DrmDevice(device, renders[0], cards[0] if cards else None)


def _minors(names: list[str], prefix: str) -> list[int]:
    minors = (amd_sysfs.minor(name, prefix) for name in names)
    return sorted(minor for minor in minors if minor is not None)


def find(
    host_root: str, dev_root: str, gpus: Iterable[AmdGpu]
) -> tuple[tuple[AmdDeviceNode, ...], list[str]]:
    """Return /dev/kfd and the DRM nodes of the devices below `dev_root`, and warnings."""
    wanted: dict[str, tuple[int | None, int]] = {}
    for gpu in gpus:
        for device in gpu.devices:
            if device.card_path is not None and device.card_minor is not None:
                wanted[device.card_path] = (amd_sysfs.DRM_MAJOR, device.card_minor)
            wanted[device.render_path] = (amd_sysfs.DRM_MAJOR, device.render_minor)
    if wanted:
        wanted = {KFD: (amd_sysfs.kfd_major(host_root), 0), **wanted}
    found, warnings = [], []
    for path, (major, minor) in wanted.items():
        node, trouble = _look(dev_root, path, major, minor)
        found += [] if node is None else [node]
        warnings += [trouble] if trouble else []
    return tuple(found), warnings


def _look(
    dev_root: str, path: str, major: int | None, minor: int
) -> tuple[AmdDeviceNode | None, str]:
    """Return (the device node, "") or (None, the warning)."""
    place = dev_root.rstrip("/") + path
    try:
        status = os.stat(place)
    except OSError:
        return None, f"{place}: no such device node"
    numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
    expected = (numbers[0] if major is None else major, minor)
    if not stat.S_ISCHR(status.st_mode) or numbers != expected:
        return None, f"{place} is not the character device {expected[0]}:{expected[1]}: left out"
    mode = stat.S_IMODE(status.st_mode)
    return AmdDeviceNode(path, *numbers, mode, status.st_uid, status.st_gid), ""
