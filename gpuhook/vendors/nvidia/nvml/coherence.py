# SPDX-License-Identifier: Apache-2.0
"""The GPUs that address the host's memory coherently (Grace Hopper and similar), by NVML.

NVIDIA's toolkit calls a GPU coherent if its addressing mode is ATS; nvml.h,
nvmlDeviceGetAddressingMode. With a library or a GPU without that function, no GPU is coherent.
"""

from __future__ import annotations

from dataclasses import replace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu

ANNOTATION = "gpu.nvidia.com/coherent"
COHERENT, OTHER = ".coherent", ".noncoherent"  # infix of their specs' kind and file name


def with_coherence(gpus: tuple[Gpu, ...], library: str) -> tuple[Gpu, ...]:
    """Return `gpus` with the answer of the NVML at the path `library`; raises GH1202 to GH1206."""
    from gpuhook.vendors.nvidia.nvml import nvml_inventory

    with nvml_inventory.opened(library):
        return tuple(replace(gpu, coherent=_is_coherent(gpu)) for gpu in gpus)


def _is_coherent(gpu: Gpu) -> bool | None:
    if gpu.lost is not None:
        return None
    import pynvml

    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(gpu.index)
        mode = pynvml.nvmlDeviceGetAddressingMode(handle)
    except pynvml.NVMLError as error:
        absent = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        return False if error.value in absent else None
    return bool(getattr(mode, "value", mode) == pynvml.NVML_DEVICE_ADDRESSING_MODE_ATS)


def groups(gpus: tuple[Gpu, ...]) -> Iterator[tuple[str, tuple[Gpu, ...]]]:
    """Yield the coherent GPUs and the others, without empty groups."""
    for infix, is_coherent in ((COHERENT, True), (OTHER, False)):
        some = tuple(gpu for gpu in gpus if gpu.coherent is is_coherent)
        if some:
            yield infix, some


def unknown(gpus: tuple[Gpu, ...]) -> list[str]:
    """Return a sentence about each GPU whose addressing mode is unknown."""
    return [
        f"GPU {gpu.index} has no annotation {ANNOTATION}: its addressing mode is unknown"
        for gpu in gpus
        if gpu.coherent is None
    ]
