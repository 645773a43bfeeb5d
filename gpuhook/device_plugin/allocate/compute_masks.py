# SPDX-License-Identifier: Apache-2.0
"""The variable that limits a container to its shares of compute units, for `computeMask`."""

from __future__ import annotations

from gpuhook.device_plugin.allocate.container_allocation import Allocation
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.vendor_device import ComputeShare

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit


def compute_mask(resource: Resource, units: Sequence[Unit]) -> Allocation:
    """Return the variable for a container with `units`.

    It is empty unless all of them are replicas whose entries ask for it, and for a resource that is
    not the vendor's only one.
    """
    devices: dict[str, tuple[Device, list[int]]] = {}
    for unit in units:
        entry = resource.entries.get(unit.device.uuid)
        if entry is None or not entry.compute_mask or unit.replica is None:
            return Allocation()
        devices.setdefault(unit.device.uuid, (unit.device, []))[1].append(unit.replica)
    shares = [
        ComputeShare(device, tuple(replicas), len(resource.index.ids[uuid]))
        for uuid, (device, replicas) in devices.items()
    ]
    return Allocation(envs=vendor_of_resource(resource.domain).compute_mask(shares))
