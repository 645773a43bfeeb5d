# SPDX-License-Identifier: Apache-2.0
"""The current use of a GPU, from the NVML that is open: memory, processes, utilization.

NVML reports memory and processes of a MIG instance by the instance's own UUID, and the utilization
of whole GPUs only. Source: nvml.h.
"""

from __future__ import annotations

import ctypes
import time
from dataclasses import dataclass
from struct import Struct
from typing import Any

import pynvml

from gpuhook.vendors.nvidia.nvml import nvml_sessions
from gpuhook.vendors.nvidia.nvml.nvml_device import NO_INSTANCE, ask_device, instance_id

_MEMORY_V2 = 0x02000028  # NVML_STRUCT_VERSION(Memory, 2)
_NO_MEMORY = 0xFFFFFFFFFFFFFFFF
_TRIES = 4  # the list of processes may grow between the call for its length and the next one
_SAMPLE_AGE = 3.0  # seconds: older samples of utilization are skipped
_MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """Bytes of memory. Without `reserved` (the driver's own part), `used` includes that part."""

    total: int
    used: int
    free: int
    reserved: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process on a GPU. `pid` is the host's, `kind` is "compute", "graphics" or "mps"."""

    pid: int
    memory_bytes: int | None
    gpu_instance: int | None
    compute_instance: int | None
    kind: str


# nvmlProcessInfo_v1_t (pid, bytes) from before MIG, and v2 (pid, bytes, GPU and compute
# instance), which _v3 uses, too.
_VERSIONS = (("_v3", Struct("@IQII")), ("_v2", Struct("@IQII")), ("", Struct("@IQ")))
# The structure of _v3 from 535.43 to 535.98: with the bytes of protected memory at the end. These
# libraries support confidential computing, and lack the later list with such bytes.
_PROTECTED = Struct("@IQII8x")
_PROTECTING, _DETAILS = (
    "nvmlDeviceGetConfComputeMemSizeInfo",
    "nvmlDeviceGetRunningProcessDetailList",
)
_KINDS = {
    "compute": "nvmlDeviceGetComputeRunningProcesses",
    "graphics": "nvmlDeviceGetGraphicsRunningProcesses",
    "mps": "nvmlDeviceGetMPSComputeRunningProcesses",
}


def memory(uuid: str) -> GpuMemory | None:
    """Return the memory of a GPU or MIG instance, None if NVML does not report it."""
    return ask_device(uuid, _memory_v2) or ask_device(uuid, _memory_v1)


def _memory_v2(handle: Any) -> GpuMemory:
    info = pynvml.nvmlDeviceGetMemoryInfo(handle, _MEMORY_V2)
    return GpuMemory(int(info.total), int(info.used), int(info.free), int(info.reserved))


def _memory_v1(handle: Any) -> GpuMemory:
    info = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return GpuMemory(int(info.total), int(info.used), int(info.free))


def processes(uuid: str) -> tuple[ProcessUse, ...] | None:
    """Return the processes of a GPU or MIG instance, None if NVML does not report them.

    A process that computes and draws is listed once for each kind.
    """
    handle = ask_device(uuid, lambda handle: handle)
    if handle is None:
        return None
    found = [_processes_of_kind(handle, kind) for kind in _KINDS]
    if all(of_kind is None for of_kind in found):
        return None
    return tuple(process for of_kind in found for process in of_kind or ())


def _processes_of_kind(handle: Any, kind: str) -> list[ProcessUse] | None:
    for suffix, layout in _VERSIONS:
        function = _function(_KINDS[kind] + suffix)
        if function is None:
            continue  # this library is older
        if suffix == "_v3" and _function(_PROTECTING) and not _function(_DETAILS):
            layout = _PROTECTED
        filled = _filled(function, handle, layout.size)
        return None if filled is None else [_process(kind, *e) for e in layout.iter_unpack(filled)]
    return None


def _function(name: str) -> Any:
    try:
        return nvml_sessions.function(name)
    except pynvml.NVMLError:
        return None


def _filled(function: Any, handle: Any, size: int) -> bytes | None:
    """Return the structures of `size` bytes that `function` wrote, None if it failed."""
    count = ctypes.c_uint(0)
    buffer = None
    for _ in range(_TRIES):
        code = function(handle, ctypes.byref(count), buffer)
        if code == pynvml.NVML_SUCCESS:
            return b"" if buffer is None else buffer.raw[: count.value * size]
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
            return None
        count.value = count.value * 2 + 5
        buffer = ctypes.create_string_buffer(count.value * size)
    return None


def _process(
    kind: str,
    pid: int,
    used: int,
    gpu_instance: int = NO_INSTANCE,
    compute_instance: int = NO_INSTANCE,
) -> ProcessUse:
    return ProcessUse(
        pid=pid,
        memory_bytes=None if used == _NO_MEMORY else used,
        gpu_instance=instance_id(gpu_instance),
        compute_instance=instance_id(compute_instance),
        kind=kind,
    )


def gpu_percent(uuid: str) -> int | None:
    """Return the percentage of the last moments in which the GPU computed, None if unknown."""
    return ask_device(uuid, lambda handle: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))


def process_percents(uuid: str) -> dict[int, int] | None:
    """Return the percentage of the multiprocessors' time by pid, None if NVML does not report it.

    Processes that were idle in the last seconds are skipped. Source: nvml.h,
    nvmlDeviceGetProcessUtilization.
    """
    since = int((time.time() - _SAMPLE_AGE) * _MICROSECONDS)
    return ask_device(uuid, lambda handle: _latest(_samples(handle, since)))


def _samples(handle: Any, since: int) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetProcessUtilization(handle, since))
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return []  # nvml.h: no process has used it since
        raise


def _latest(samples: list[Any]) -> dict[int, int]:
    """Return the last percentage of each process; values above 100 are a driver's garbage."""
    ordered = sorted(samples, key=lambda sample: int(sample.timeStamp))
    return {int(one.pid): int(one.smUtil) for one in ordered if one.pid and one.smUtil <= 100}
