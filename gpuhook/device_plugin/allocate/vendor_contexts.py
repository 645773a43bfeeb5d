# SPDX-License-Identifier: Apache-2.0
"""The contexts for the devices of other vendors' parts of a node, and their unusable devices."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.device_plugin.allocate import allocation_context
from gpuhook.device_plugin.allocate.allocation_context import CDI_STRATEGIES, Specs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.device_plugin.allocate.allocation_context import Context
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.vendor_part import VendorPart


def with_parts(
    context: Context,
    configuration: Configuration,
    parts: Iterable[VendorPart],
    offered: Collection[Resource],
    directory: str | None,
) -> tuple[Context, tuple[str, ...]]:
    """Return `context` with those of the other vendors, and the paths of their written specs.

    Without a `directory` for CDI specs nothing is written.
    """
    found: dict[str, Context] = {}
    written: tuple[str, ...] = ()
    for part in parts:
        specs = Specs()
        if set(configuration.flags.amd.device_list_strategy) & set(CDI_STRATEGIES):
            from gpuhook.device_plugin.allocate import plugin_specs

            own = (one for one in offered if one.domain == part.domain)
            devices = {device.uuid: device for one in own for device in one.devices}
            specs = plugin_specs.update_part(part, devices.values(), directory=directory)
            written += specs.written
        found[part.domain] = allocation_context.part_context(configuration, part, specs)
    warnings = (warning for one in found.values() for warning in one.warnings)
    return replace(context, of_domains=found, warnings=(*context.warnings, *warnings)), written


def lost_devices(offered: Collection[Resource], parts: Iterable[VendorPart]) -> dict[str, str]:
    """Return the reasons of the lost devices of other vendors, and of unusable drivers, by UUID."""
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
