# SPDX-License-Identifier: Apache-2.0
"""The family of a GPU in AMD's node labeller: the name of a number of the amdgpu driver.

Source: include/uapi/drm/amdgpu_drm.h.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
from dataclasses import replace
from struct import Struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

_FAMILIES = {
    110: "SI", 120: "CI", 125: "KV", 130: "VI", 135: "CZ", 141: "AI", 142: "RV", 143: "NV",
    144: "VGH", 145: "GC_11_0_0", 146: "YC", 148: "GC_11_0_1", 149: "GC_10_3_6", 150: "GC_11_5_0",
    151: "GC_10_3_7", 152: "GC_12_0_0",
}  # fmt: skip
_INFO = 0x40206445  # DRM_IOCTL_AMDGPU_INFO
_DEVICE_INFO = 0x16  # AMDGPU_INFO_DEV_INFO
_REQUEST = Struct("=QII16x")  # drm_amdgpu_info: address and size of the answer, query
_FAMILY = Struct("=16xI")  # in drm_amdgpu_info_device


def with_families(node: AmdNode, host_root: str) -> AmdNode:
    """Return a node with the families of GPUs whose gfx version does not decide it.

    Only for these is the driver asked: opening a render node wakes a sleeping GPU.
    """
    gpus = (
        replace(gpu, family=_FAMILIES.get(_ask(host_root + gpu.devices[0].render_path)))
        if gpu.family is None and gpu.devices
        else gpu
        for gpu in node.gpus
    )
    return replace(node, gpus=tuple(gpus))


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
