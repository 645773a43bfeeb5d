# SPDX-License-Identifier: Apache-2.0
"""The contexts for the devices of the vendors' parts of a node, and their unusable devices."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.allocate import allocation_context
from gpuhook.device_plugin.allocate.allocation_context import CDI_STRATEGIES, Context, Specs
from gpuhook.device_plugin.vendor_flags import vendor_flags
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from gpuhook.device_plugin.allocate.auxiliary_devices import AuxiliaryDevice
    from gpuhook.device_plugin.allocate.container_allocation import Allocation
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.vendors.vendor_part import VendorPart


@dataclass(frozen=True, slots=True)
class Additions:
    """What containers get in addition to the devices of a vendor."""

    auxiliary: tuple[AuxiliaryDevice, ...] = ()
    mps: Mapping[str, Allocation] = field(default_factory=dict)  # by resource
    missing: Mapping[str, str] = field(default_factory=dict)  # interposers: what the host lacks


def with_parts(
    configuration: Configuration,
    parts: Iterable[VendorPart],
    specs: Mapping[str, Specs],
    added: Additions | None = None,
) -> Context:
    """Return a context with those of the vendors; `specs` are those of each domain."""
    added = added or Additions()
    found = {
        part.domain: allocation_context.context(
            configuration,
            part,
            specs[part.domain],
            auxiliary_of(part, added.auxiliary),
            added.mps,
            missing=added.missing,
        )
        for part in parts
    }
    warnings = [warning for one in found.values() for warning in one.warnings]
    lacking = added.missing.items()
    warnings += [f"the interposer {name}: the host has no {path}" for name, path in lacking]
    return Context(of_domains=found, warnings=tuple(warnings))


def auxiliary_of(
    part: VendorPart, devices: Iterable[AuxiliaryDevice]
) -> tuple[AuxiliaryDevice, ...]:
    """Return the auxiliary devices for containers with devices of a part."""
    classes = vendor_of_resource(part.domain).auxiliary_classes
    return tuple(one for one in devices if one.device_class in classes)


def updated_specs(
    configuration: Configuration,
    parts: Collection[VendorPart],
    offered: Collection[Resource],
    update: Callable[[VendorPart, Collection[Device]], Specs],
) -> dict[str, Specs]:
    """Return the CDI specs by domain, those of `update` if a device list strategy uses them.

    A vendor needs none if another one has all devices.
    """
    found = {}
    for part in parts:
        own = (one for one in offered if one.domain == part.domain)
        devices = {device.uuid: device for one in own for device in one.devices}
        vendor = vendor_of_resource(part.domain)
        chosen = vendor_flags(configuration.flags, vendor.name).list_strategies
        is_needed = not set(CDI_STRATEGIES).isdisjoint(chosen) and (devices or len(parts) == 1)
        found[part.domain] = update(part, devices.values()) if is_needed else Specs()
    return found


def lost_devices(offered: Collection[Resource], parts: Iterable[VendorPart]) -> dict[str, str]:
    """Return the reasons of lost devices, and of those of unusable drivers, by UUID."""
    found: dict[str, str] = {}
    for part in parts:
        found |= part.lost
        if part.trouble:
            own = (one for one in offered if one.domain == part.domain)
            found |= {device.uuid: part.trouble for one in own for device in one.devices}
    return found


def blocked_devices(offered: Iterable[Resource], context: Context) -> dict[str, str]:
    """Return the reason for each device that no working strategy passes to containers, by UUID."""
    return {
        device.uuid: blocked
        for resource in offered
        if (blocked := context.of_resource(resource).blocked)
        for device in resource.devices
    }
