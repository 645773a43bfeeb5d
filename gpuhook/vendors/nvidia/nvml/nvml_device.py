# SPDX-License-Identifier: Apache-2.0
"""One GPU or MIG instance, by its UUID, of the NVML that is open (nvml_inventory.opened)."""

from __future__ import annotations

from typing import Any, TypeVar

import pynvml

from gpuhook.vendors.nvidia.warm import nvml_constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def ask_device(uuid: str, question: Callable[[Any], T]) -> T | None:
    """Return what `question` says of the device's handle, None where NVML says nothing.

    That is so of a lost device, an old library and a field that the device doesn't have.
    """
    return answered(lambda: question(pynvml.nvmlDeviceGetHandleByUUID(uuid)))


def answered(question: Callable[[], T]) -> T | None:
    """Return what `question` says, None where NVML says nothing."""
    try:
        return question()
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def loss(uuid: str) -> str | None:
    """Return the reason why the GPU cannot be used, None when it answers or NVML itself fails."""
    try:
        # The memory is asked of the GPU's driver: NVML remembers names and numbers of a lost one.
        pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return loss_of(error)
    return None


def loss_of(error: Any) -> str | None:
    """Return the reason if the NVMLError says that a GPU is lost, else None."""
    if error.value == pynvml.NVML_ERROR_NOT_FOUND:
        return "NVML no longer knows it"
    return nvml_constants.LOSSES.get(error.value)
