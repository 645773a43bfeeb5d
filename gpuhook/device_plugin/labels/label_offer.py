# SPDX-License-Identifier: Apache-2.0
"""The offer of the device plugin as the vendors' labels describe it."""

from __future__ import annotations

from collections import Counter

from gpuhook.device_plugin.offer.sharing_notes import limit_enforcer
from gpuhook.device_plugin.vendor_flags import vendor_flags
from gpuhook.vendors.labels.vendor_labels import LabelOffer, OfferedDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.vendors.interfaces.vendor_interface import Vendor


def label_offer(
    vendor: Vendor,
    resources: Iterable[Resource],
    configuration: Configuration,
    *,
    driver_limits: bool,
    timestamp: int | None,
    is_only: bool,
) -> LabelOffer:
    """Return the offer for a vendor's labels.

    `driver_limits`: the driver or the kernel can enforce memory limits.
    """
    guard = configuration.own.guard.ends_processes
    renamed = _renamed(configuration)
    found: dict[str, tuple[Resource, Device]] = {}
    replicas: Counter[str] = Counter()
    for resource in resources:
        for unit in resource.units:
            uuid = unit.device.uuid
            if found.setdefault(uuid, (resource, unit.device))[0] is resource:
                replicas[uuid] += 1
    devices = []
    for uuid, (resource, device) in found.items():
        limit, own = resource.memory.get(uuid), resource.index.ids[uuid][0]
        devices.append(
            OfferedDevice(
                device,
                replicas[uuid],
                is_shared=resource.units[resource.index.positions[own]].replica is not None,
                limit_bytes=limit.hard if limit else None,
                memory_by=limit_enforcer(resource, device, driver=driver_limits, guard=guard),
                sharing=resource.sharing,
                is_renamed=resource.name in renamed,
            )
        )
    return LabelOffer(
        tuple(devices),
        kinds=configuration.own.device_labels,
        strategy=vendor_flags(configuration.flags, vendor.name).naming_strategy,
        sharing=configuration.sharing.strategy,
        excluded=configuration.own.exclude_devices,
        machine_file=configuration.flags.gfd.machine_type_file,
        timestamp=timestamp,
        is_only=is_only,
    )


def _renamed(configuration: Configuration) -> set[str]:
    """Return the resource names that the configuration uses only for shared devices."""
    sharing = configuration.sharing
    names = (
        (entry.name, entry.offered_name(by_default=sharing.rename_by_default))
        for entry in sharing.resources
    )
    return {after for before, after in names if after != before}
