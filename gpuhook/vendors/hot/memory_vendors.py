# SPDX-License-Identifier: Apache-2.0
"""The vendors of the devices whose memory may be limited at a container's start.

Imported only for a container with a limit.
"""

from __future__ import annotations

from gpuhook.vendors.amd.hot.amd_memory import AmdMemory
from gpuhook.vendors.nvidia.hot.nvidia_memory import NvidiaMemory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.vendors.interfaces.memory_interface import MemoryVendor


def memory_vendors() -> tuple[MemoryVendor, ...]:
    """Return all vendors, in the order of vendors()."""
    return (NvidiaMemory(), AmdMemory())


def by_vendor(limits: Iterable[MemoryLimit]) -> dict[str, list[MemoryLimit]]:
    """Return limits by the domain of their device's vendor: one that fails must affect no other."""
    found: dict[str, list[MemoryLimit]] = {}
    for limit in limits:
        found.setdefault(vendor_of(limit.device).domain, []).append(limit)
    return found


def vendor_of(device: str) -> MemoryVendor:
    """Return the vendor of a device id; the first one for an id that none of them has."""
    known = memory_vendors()
    return next((vendor for vendor in known if vendor.has_device(device)), known[0])
