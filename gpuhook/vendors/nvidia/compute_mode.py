# SPDX-License-Identifier: Apache-2.0
"""The compute mode of a GPU, set: who may use it beside whom. Source: nvml.h, nvmlComputeMode_t."""

from __future__ import annotations

import pynvml

from gpuhook.errors import fault
from gpuhook.vendors.nvidia import nvml

EXCLUSIVE_PROCESS, DEFAULT = "exclusive-process", "default"
_MODES = {
    DEFAULT: pynvml.NVML_COMPUTEMODE_DEFAULT,
    EXCLUSIVE_PROCESS: pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS,
}


def set_compute_mode(library: tuple[str, str | None], uuid: str, mode: str) -> None:
    """Set the mode of the GPU `uuid`; `library` is (path, version of the kernel module).

    Raises GH1877 where the driver refuses, and what nvml.opened() raises. It needs root.
    """
    with nvml.opened(*library):
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            pynvml.nvmlDeviceSetComputeMode(handle, _MODES[mode])
        except pynvml.NVMLError as error:
            raise fault("GH1877", uuid=uuid, mode=mode, reason=error) from error
