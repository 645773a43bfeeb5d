# SPDX-License-Identifier: Apache-2.0
"""AMD's answers about memory limits at a container's start (memory_interface.py)."""

from __future__ import annotations

import os

from gpuhook.host.hot import state
from gpuhook.request.memory_request import BY_KERNEL
from gpuhook.vendors.amd.hot import amd_sysfs, amd_words

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

_RENDER = amd_words.DRM + "renderD"


class AmdMemory:
    """AMD: device ids are PCI addresses and names of partitions; the kernel limits memory."""

    domain = amd_words.VENDOR
    vocabulary = amd_words.VOCABULARY
    limited_by = BY_KERNEL
    context = 0  # the bytes of a ROCm context are unknown

    def has_device(self, device: str) -> bool:
        """Return whether a device id is AMD's: a PCI address, or the name of a partition."""
        return amd_sysfs.is_address(device) or amd_sysfs.partition_id(device) == device

    def devices(
        self,
        spec: dict[str, Any],  # noqa: ARG002 # of the interface
        nodes: Collection[str],
        names: Iterable[str],  # noqa: ARG002
        covered: Callable[[], Collection[str]],  # noqa: ARG002
    ) -> list[str]:
        """Return the ids of the devices whose render nodes are among `nodes`.

        The kernel's files name each of them. Other vendors' render nodes are skipped.
        """
        root = state.host_root().rstrip("/")
        found = (_device(root, path) for path in nodes if path.startswith(_RENDER))
        return list(dict.fromkeys(device for device in found if device))

    def totals(self, devices: Collection[str]) -> dict[str, int]:
        """Return the bytes of the GPUs among `devices`, without unknown ones and partitions."""
        found = {device: vram_total(device) for device in devices}
        return {device: size for device, size in found.items() if size is not None}

    def reports_limit(
        self,
        devices: Collection[str],  # noqa: ARG002 # of the interface
        library: str,  # noqa: ARG002
    ) -> bool:
        """Return whether programs get the limit as the total of their card: ROCm does not."""
        return False


def gpu_directory(device: str) -> str:
    """Return the directory of a GPU in /sys, "" for a partition or a GPU without the driver."""
    directory = _directory(device)
    return "" if _is_divided(directory) else directory


def is_partition(device: str) -> bool:
    """Return whether a device is a partition: the first one has the address of its GPU."""
    return amd_sysfs.partition_id(device) is not None or _is_divided(_directory(device))


def vram_total(device: str) -> int | None:
    """Return the bytes of a GPU, None if they are unknown, as those of a partition."""
    directory = gpu_directory(device)
    return amd_sysfs.number(f"{directory}/mem_info_vram_total") if directory else None


def _directory(device: str) -> str:
    directory = amd_sysfs.directory_of(state.host_root(), device)
    return directory if amd_sysfs.is_address(device) and os.path.isdir(directory) else ""


def _is_divided(directory: str) -> bool:
    """Return whether the GPU with this directory has several partitions: its mode is not SPX."""
    return amd_sysfs.is_divided(amd_sysfs.mode(f"{directory}/{amd_sysfs.MODES[0]}"))


def _device(root: str, path: str) -> str | None:
    """Return the id of the device with a render node, None if amdgpu does not serve it."""
    device = amd_sysfs.device_of(f"{root}{amd_sysfs.DRM}/{path.rpartition('/')[2]}")
    return device if amd_sysfs.is_served(root, device) else None
