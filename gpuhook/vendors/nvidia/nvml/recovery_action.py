# SPDX-License-Identifier: Apache-2.0
"""What the driver says a GPU needs before it works again, asked of the NVML that is open.

Source: nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
"""

from __future__ import annotations

from typing import Any

import pynvml

from gpuhook.vendors.nvidia.nvml.nvml_device import ask_device

_FIELD = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which older pynvml has no name for
# nvmlDeviceGpuRecoveryAction_t.
_ACTIONS = (
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


def recovery_action(uuid: str) -> str | None:
    """Return what the driver recommends for the GPU: "none", "reset", "reboot", "drain-p2p" ...

    An action that is newer than this module is "action 9". None: the driver has no
    such field, or the GPU is lost.
    """
    return ask_device(uuid, _action)


def _action(handle: Any) -> str | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(handle, [_FIELD])
    member = _MEMBERS.get(field.valueType)
    if field.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    number = int(getattr(field.value, member))
    return _ACTIONS[number] if 0 <= number < len(_ACTIONS) else f"action {number}"
