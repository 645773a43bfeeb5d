# SPDX-License-Identifier: Apache-2.0
"""The devices of a node, each with the name of its resource before sharing.

Each vendor names its own devices. If the devices of one vendor cannot be offered together, those of
the others are offered nevertheless.
"""

from __future__ import annotations

from gpuhook.device_plugin.vendor_flags import vendor_flags
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of
from gpuhook.vendors.vendor_device import NamingRules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.vendor_device import NamedDevice, NamedDevices


def resource_devices(
    inventory: object, configuration: Configuration, *others: object
) -> tuple[tuple[NamedDevice, ...], tuple[str, ...]]:
    """Return (the devices of the inventories in their order, warnings about omitted devices).

    An inventory has the facts of one vendor's GPUs. Raises the fault of a vendor, such as GH1840,
    if no other vendor has a device.
    """
    found: list[NamedDevices] = []
    faults: list[GpuhookError] = []
    for one in (inventory, *others):
        vendor = vendor_of(one)
        try:
            found.append(vendor.named_devices(one, _rules(configuration, vendor)))
        except GpuhookError as error:
            faults.append(error)
    devices = tuple(named for one in found for named in one.devices)
    if faults and not devices:
        raise faults[0]
    excluded = configuration.own.exclude_devices
    unknown = [name for name in excluded if all(name in one.unknown for one in found)]
    warnings = [f"gpuhook.excludeDevices: this node has no device {name!r}" for name in unknown]
    warnings += [f"{error.message} ({error.code}): {error.hint}" for error in faults]
    return devices, (*warnings, *(warning for one in found for warning in one.warnings))


def _rules(configuration: Configuration, vendor: Vendor) -> NamingRules:
    """Return the rules for the devices of a vendor: entries with a name in its domain."""
    strategy = vendor_flags(configuration.flags, vendor.name).naming_strategy
    models, profiles = (
        tuple(
            (one.pattern, one.name) for one in entries if one.name.startswith(vendor.domain + "/")
        )
        for entries in (configuration.gpus, configuration.mig)
    )
    excluded = configuration.own.exclude_devices
    return NamingRules(strategy, models, profiles, excluded)
