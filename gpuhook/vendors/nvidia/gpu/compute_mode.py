# SPDX-License-Identifier: Apache-2.0
"""The compute mode of a GPU, read and set: which processes may use it at the same time.

Source: nvml.h, nvmlComputeMode_t.
"""

from __future__ import annotations

import pynvml

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.nvml import nvml_inventory
from gpuhook.vendors.nvidia.warm import nvml_constants

EXCLUSIVE_PROCESS, DEFAULT = "exclusive-process", "default"
_MODES = {name: number for number, name in nvml_constants.COMPUTE_MODES.items()}


def set_compute_mode(library: tuple[str, str | None], uuid: str, mode: str) -> None:
    """Set the mode of the GPU `uuid`; `library` is (path, version of the kernel module).

    Raises GH1877 if the driver refuses, and the faults of nvml_inventory.opened(). It needs root.
    """
    with nvml_inventory.opened(*library):
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            pynvml.nvmlDeviceSetComputeMode(handle, _MODES[mode])
        except pynvml.NVMLError as error:
            raise fault("GH1877", uuid=uuid, mode=mode, reason=error) from error


def compute_mode(library: tuple[str, str | None], uuid: str) -> str:
    """Return the mode of the GPU `uuid`.

    Raises GH1265 if the driver does not report it, and the faults of nvml_inventory.opened().
    """
    with nvml_inventory.opened(*library):
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            number = pynvml.nvmlDeviceGetComputeMode(handle)
        except pynvml.NVMLError as error:
            raise fault("GH1265", uuid=uuid, reason=error) from error
    if number not in nvml_constants.COMPUTE_MODES:
        raise fault("GH1265", uuid=uuid, reason=f"NVML reports {number}")
    return nvml_constants.COMPUTE_MODES[number]
