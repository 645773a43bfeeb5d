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
    """Return the variable for a container with `units`, empty unless all their entries ask for it.

    A container that has devices of another resource as well has other indices of its devices: the
    variable is then that of the last answer.
    """
    entries = (resource.entries.get(unit.device.uuid) for unit in units)
    if not all(entry is not None and entry.compute_mask for entry in entries):
        return Allocation()
    devices: dict[str, tuple[Device, list[int]]] = {}
    for unit in units:
        if unit.replica is not None:
            devices.setdefault(unit.device.uuid, (unit.device, []))[1].append(unit.replica)
    shares = [
        ComputeShare(device, tuple(replicas), len(resource.index.ids[uuid]))
        for uuid, (device, replicas) in devices.items()
    ]
    return Allocation(envs=vendor_of_resource(resource.domain).compute_mask(shares))
