# SPDX-License-Identifier: Apache-2.0
"""The NVLink fabric of a GPU across machines, from the NVML that is open.

Source: nvml.h, nvmlDeviceGetGpuFabricInfoV with nvmlGpuFabricInfo_v2_t.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from struct import Struct
from typing import Any

import pynvml

from gpuhook.vendors.nvidia.nvml import nvml_sessions
from gpuhook.vendors.nvidia.nvml.nvml_device import ask_device

_COMPLETED = 3  # NVML_GPU_FABRIC_STATE_COMPLETED


@dataclass(frozen=True, slots=True)
class Fabric:
    """A cluster of GPUs; those of one clique can access each other's memory."""

    cluster: str  # a UUID without a prefix
    clique: int


# nvmlGpuFabricInfo_v2_t: version, cluster, status, clique, state (one byte), health.
_INFO = Struct("@I16s2IB3xI")
_VERSION = _INFO.size | 2 << 24  # NVML_STRUCT_VERSION


def fabric(uuid: str) -> Fabric | None:
    """Return the fabric that spans machines and that a GPU has joined, else None."""
    return ask_device(uuid, _fabric)


def _fabric(handle: Any) -> Fabric | None:
    info = ctypes.create_string_buffer(_INFO.pack(_VERSION, b"", 0, 0, 0, 0), _INFO.size)
    code = nvml_sessions.function("nvmlDeviceGetGpuFabricInfoV")(handle, info)
    _, cluster, status, clique, state, _ = _INFO.unpack(info.raw)
    if code != pynvml.NVML_SUCCESS or status != pynvml.NVML_SUCCESS or state != _COMPLETED:
        return None
    if not any(cluster):  # the switches of one machine: no cluster
        return None
    digits = cluster.hex()
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return Fabric("-".join(parts), clique)
