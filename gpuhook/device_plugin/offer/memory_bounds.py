# SPDX-License-Identifier: Apache-2.0
"""Who bounds what a container uses of a device's memory, by how the device is offered.

Pure. The driver does where it has the call and the runtime of the node makes it; that it was made
for one container is what the ledger says. MIG instances have no such call (nvml.h).
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
    """Return who bounds the memory of a container with units of `device`: BY_DRIVER and so on.

    `driver`: this node's driver holds limits; `guard`: where it does not, the plugin ends processes
    of who is above: one that only reports bounds nothing.
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
    """Return whether a unit of `device` may use more than is kept for it."""
    memory = resource.memory.get(device.uuid)
    return memory is not None and memory.soft < memory.hard
