# SPDX-License-Identifier: Apache-2.0
"""One GPU or MIG instance, by its UUID, of the NVML that is open (nvml_inventory.opened).

Source of the recovery action, the driver's recommendation after an error: nvml.h,
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
"""

from __future__ import annotations

from typing import Any, TypeVar

import pynvml

from gpuhook.vendors.nvidia.warm import nvml_constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
NO_INSTANCE = 0xFFFFFFFF
_RECOVERY_FIELD = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which older pynvml has no name for
# nvmlDeviceGpuRecoveryAction_t.
_RECOVERY_ACTIONS = (
    "none",
    "reset",
    "reboot",
    "drain-p2p",
    "drain-and-reset",
    "recover-imex",
    "bus-reset",
    "system-reboot",
)
# The member of nvmlValue_t by nvmlValueType_t.
_MEMBERS = {1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def ask_device(uuid: str, question: Callable[[Any], T]) -> T | None:
    """Return the result of `question` for the device's handle, None if NVML does not answer.

    NVML does not answer for a lost device, in an old library, and for an unsupported field.
    """
    return answered(lambda: question(pynvml.nvmlDeviceGetHandleByUUID(uuid)))


def answered(question: Callable[[], T]) -> T | None:
    """Return the result of `question`, None if NVML does not answer."""
    try:
        return question()
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def instance_id(number: int) -> int | None:
    """Return the id of a GPU or compute instance, None for NVML's number of no instance."""
    return None if number == NO_INSTANCE else number


def loss(uuid: str) -> str | None:
    """Return why the GPU cannot be used, None if it answers or NVML itself fails."""
    try:
        # The memory comes from the GPU's driver: NVML remembers names and numbers of a lost GPU.
        pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid))
    except pynvml.NVMLError as error:
        return loss_of(error)
    return None


def loss_of(error: Any) -> str | None:
    """Return the reason if the NVMLError means that a GPU is lost, else None."""
    if error.value == pynvml.NVML_ERROR_NOT_FOUND:
        return "NVML no longer knows it"
    return nvml_constants.LOSSES.get(error.value)


def recovery_action(uuid: str) -> str | None:
    """Return the driver's recommendation for the GPU: "none", "reset", "reboot", "drain-p2p" ...

    An action that is newer than this module is "action 9". None: the driver has no such field, or
    the GPU is lost.
    """
    return ask_device(uuid, _recovery)


def _recovery(handle: Any) -> str | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_FIELD])
    member = _MEMBERS.get(field.valueType)
    if field.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    number = int(getattr(field.value, member))
    return _RECOVERY_ACTIONS[number] if 0 <= number < len(_RECOVERY_ACTIONS) else f"action {number}"
