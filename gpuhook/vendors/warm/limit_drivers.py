# SPDX-License-Identifier: Apache-2.0
"""Opens what enforces the memory limits of a device: the driver of its vendor, or the kernel."""

from __future__ import annotations

from gpuhook.vendors.amd.hot import amd_words
from gpuhook.vendors.amd.warm.vram_limits import VramLimits
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.warm import nvml_library
from gpuhook.vendors.nvidia.warm.nvml_limits import NvmlDriver

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.vendors.interfaces.memory_interface import LimitDriver

    Library = Callable[[], str]

_OPENED: dict[str, Callable[[Library], LimitDriver]] = {
    vocabulary.VENDOR: lambda library: NvmlDriver(library() or nvml_library.find("/")),
    amd_words.VENDOR: lambda _library: VramLimits(),
}


def open_driver(domain: str, library: Library) -> LimitDriver:
    """Return what enforces the limits of the devices of the vendor with this domain.

    `library` returns the path of its driver's library, for a vendor that has one; "" is searched
    on this host. Raises its faults.
    """
    return _OPENED[domain](library)
