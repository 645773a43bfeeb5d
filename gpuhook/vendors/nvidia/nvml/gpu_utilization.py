# SPDX-License-Identifier: Apache-2.0
"""How busy a GPU is, and each process on it, asked of the NVML that is open.

A MIG instance tells neither. Source: nvml.h, nvmlDeviceGetUtilizationRates and
nvmlDeviceGetProcessUtilization.
"""

from __future__ import annotations

import time
from typing import Any

import pynvml

from gpuhook.vendors.nvidia.nvml.nvml_device import ask_device

_SAMPLED_WITHIN = 3.0  # seconds: what is older says nothing of now
_MICROSECONDS = 1_000_000


def of_gpu(uuid: str) -> int | None:
    """Return the percentage of the last moments in which the GPU computed, None: not told."""
    return ask_device(uuid, lambda handle: int(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))


def of_processes(uuid: str) -> dict[int, int] | None:
    """Return the percentage of the multiprocessors' time by pid, None where NVML does not tell.

    A process that has done nothing of late is not among them.
    """
    since = int((time.time() - _SAMPLED_WITHIN) * _MICROSECONDS)
    return ask_device(uuid, lambda handle: _latest(_samples(handle, since)))


def _samples(handle: Any, since: int) -> list[Any]:
    try:
        return list(pynvml.nvmlDeviceGetProcessUtilization(handle, since))
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_NOT_FOUND:
            return []  # nvml.h: nobody has used it since
        raise


def _latest(samples: list[Any]) -> dict[int, int]:
    """Return the last sample of each process; a driver's odd numbers are none."""
    ordered = sorted(samples, key=lambda sample: int(sample.timeStamp))
    return {int(one.pid): int(one.smUtil) for one in ordered if one.pid and one.smUtil <= 100}
