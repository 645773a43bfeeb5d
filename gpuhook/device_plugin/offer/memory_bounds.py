# SPDX-License-Identifier: Apache-2.0
"""The component that enforces the memory limit of a container, by how its device is offered.

Pure. The driver enforces limits if it has the call and the node's runtime makes it; the ledger
records the call for each container. MIG instances have no such call (nvml.h).
"""

from __future__ import annotations

from gpuhook.device_plugin.config.sharing_section import MPS, NOT_SHARED
from gpuhook.vendors.nvidia.gpu.sharing_isolation import (
    BY_DRIVER,
    BY_GUARD,
    BY_HARDWARE,
    BY_MPS,
    BY_NOBODY,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource


def bound(resource: Resource, device: Device, *, driver: bool, guard: bool) -> str:
    """Return what enforces the memory limit of a unit of `device`: BY_DRIVER and so on.

    `driver`: this node's driver enforces limits. `guard`: otherwise the plugin ends processes above
    a limit; a guard that only reports enforces nothing.
    """
    if device.uuid not in resource.memory:
        alone = device.instance is not None and resource.sharing == NOT_SHARED
        return BY_HARDWARE if alone else BY_NOBODY
    if resource.sharing == MPS:
        return BY_MPS
    if driver and device.instance is None:
        return BY_DRIVER
    return BY_GUARD if guard else BY_NOBODY


def is_oversubscribed(resource: Resource, device: Device) -> bool:
    """Return whether the limit of a unit of `device` exceeds its guaranteed memory."""
    memory = resource.memory.get(device.uuid)
    return memory is not None and memory.soft < memory.hard
