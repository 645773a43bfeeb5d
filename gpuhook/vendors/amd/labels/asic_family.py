# SPDX-License-Identifier: Apache-2.0
"""The family of a GPU in AMD's node labeller: the name of a number of the amdgpu driver.

Sources: include/uapi/drm/amdgpu_drm.h (numbers, and the ioctl), amdgpu_discovery.c and kfd_device.c
(families of gfx versions).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from dataclasses import replace
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdGpu, AmdNode

_FAMILIES = {
    110: "SI", 120: "CI", 125: "KV", 130: "VI", 135: "CZ", 141: "AI", 142: "RV", 143: "NV",
    144: "VGH", 145: "GC_11_0_0", 146: "YC", 148: "GC_11_0_1", 149: "GC_10_3_6", 150: "GC_11_5_0",
    151: "GC_10_3_7", 152: "GC_12_0_0",
}  # fmt: skip
# Only versions that belong to one family: gfx1036, for one, belongs to two.
_OF_GFX = {
    **dict.fromkeys(("gfx900", "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950"), "AI"),
    **dict.fromkeys(("gfx1030", "gfx1031", "gfx1032", "gfx1034"), "NV"),
    **dict.fromkeys(("gfx1100", "gfx1101", "gfx1102"), "GC_11_0_0"),
    **dict.fromkeys(("gfx1200", "gfx1201"), "GC_12_0_0"),
}
_INFO = 0x40206445  # DRM_IOCTL_AMDGPU_INFO
_DEVICE_INFO = 0x16  # AMDGPU_INFO_DEV_INFO
_REQUEST = Struct("=QII16x")  # drm_amdgpu_info: address and size of the answer, query
_FAMILY = Struct("=16xI")  # in drm_amdgpu_info_device


def with_families(node: AmdNode, host_root: str | None) -> AmdNode:
    """Return a node whose GPUs have their families; `host_root` None: it is not this machine."""
    gpus = tuple(replace(gpu, family=family(gpu, host_root)) for gpu in node.gpus)
    return replace(node, gpus=gpus)


def family(gpu: AmdGpu, dev_root: str | None) -> str | None:
    """Return the family of a GPU, None if it is unknown.

    The driver is asked below `dev_root` only if the gfx version does not decide, since opening the
    render node wakes a sleeping GPU; None: never.
    """
    if gpu.family is not None or not gpu.devices:
        return gpu.family
    known = _OF_GFX.get(gpu.devices[0].gfx or "")
    if known is not None or dev_root is None:
        return known
    return _FAMILIES.get(_ask(os.path.join(dev_root, gpu.devices[0].render_path.lstrip("/"))))


def _ask(path: str) -> int:
    """Return the number of the family from the driver, 0 if it does not answer."""
    answer = ctypes.create_string_buffer(_FAMILY.size)
    request = _REQUEST.pack(ctypes.addressof(answer), _FAMILY.size, _DEVICE_INFO)
    try:
        node = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        fcntl.ioctl(node, _INFO, request)
    except OSError:
        return 0
    finally:
        os.close(node)
    number: int = _FAMILY.unpack(answer.raw)[0]
    return number
