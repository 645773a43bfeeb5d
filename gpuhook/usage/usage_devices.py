# SPDX-License-Identifier: Apache-2.0
"""The devices of all vendors on this node, with their present usage as far as it is known.

A vendor that fails leaves the devices of the others.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from gpuhook.errors import GpuhookError, fault
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.usage.usage_device import UsageLook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.usage.usage_device import UsageDevice

_BROKEN = (OSError, ValueError, TypeError, KeyError, AttributeError)


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices, and why a vendor's usage is unknown. `is_asked`: the drivers were asked.

    `absence` is why the node has no driver at all, which is no fault; None if it has one.
    """

    devices: tuple[UsageDevice, ...] = ()
    trouble: tuple[GpuhookError, ...] = ()
    absence: GpuhookError | None = None
    is_asked: bool = True
    warnings: tuple[str, ...] = ()


@contextmanager
def opened(library: Callable[[], str]) -> Iterator[Callable[[], NodeDevices]]:
    """Yield a function that reads the usage now; the drivers remain open.

    `library` returns the path of a vendor's library by the options of the command.
    """
    with ExitStack() as stack:
        looks = {vendor.name: _opened(vendor, library, stack) for vendor in vendors()}
        yield lambda: _merged({name: look() for name, look in looks.items()})


def known_devices(library: str = "") -> NodeDevices:
    """Return the devices without their usage.

    No driver is asked, except, with a `library`, that of a vendor without known devices.
    """
    looks = {
        vendor.name: _guarded(vendor, partial(_known, vendor, library))() for vendor in vendors()
    }
    return NodeDevices(_merged(looks).devices, is_asked=False)


def of_inventory(inventory: object) -> tuple[UsageDevice, ...]:
    """Return the devices of this node: its vendor's as an inventory has them, and the others'."""
    return merged(
        {
            vendor.name: vendor.inventory_devices(inventory)
            if vendor.owns(inventory)
            else _guarded(vendor, partial(_known, vendor, ""))().devices
            for vendor in vendors()
        }
    )


def of_file(name: str) -> tuple[UsageDevice, ...]:
    """Return the devices in an inventory file or profile; raises what load() of it raises."""
    return merged({vendor.name: vendor.file_devices(name) for vendor in vendors()})


def by_node(devices: Iterable[UsageDevice]) -> dict[str, str]:
    """Return device node -> id, of the nodes that only the holders of a device have.

    `devices` of the driver override what a vendor recorded.
    """
    listed = list(devices)
    split = {one.node for one in listed if one.is_split}
    noted = {node: one for vendor in vendors() for node, one in vendor.noted_nodes().items()}
    found = {node: one for node, one in noted.items() if node not in split}
    found |= {one.node: one.uuid for one in listed if one.node and one.uuid and not one.is_split}
    return found


def merged(by_vendor: Mapping[str, tuple[UsageDevice, ...]]) -> tuple[UsageDevice, ...]:
    """Return the devices of all vendors.

    Indices are those of the first vendor that has devices; others have their vendor's word first.
    """
    found: list[UsageDevice] = []
    for name, devices in by_vendor.items():
        word = f"{name} " if found else ""
        found += [replace(one, index=word + one.index) for one in devices]
    return tuple(found)


def _known(vendor: Vendor, library: str) -> UsageLook:
    inventory = vendor.known_inventory()
    devices = () if inventory is None else vendor.inventory_devices(inventory)
    if devices or not library:
        return UsageLook(devices)
    with vendor.opened_usage(lambda: library) as look:
        return look()


def _opened(
    vendor: Vendor, library: Callable[[], str], stack: ExitStack
) -> Callable[[], UsageLook]:
    try:
        return _guarded(vendor, stack.enter_context(vendor.opened_usage(library)))
    except (GpuhookError, *_BROKEN) as error:
        trouble = _trouble(vendor, error)
        return lambda: trouble


def _guarded(vendor: Vendor, look: Callable[[], UsageLook]) -> Callable[[], UsageLook]:
    """Return `look` without exceptions: one vendor's are not the others'."""

    def guarded() -> UsageLook:
        try:
            return look()
        except (GpuhookError, *_BROKEN) as error:
            return _trouble(vendor, error)

    return guarded


def _trouble(vendor: Vendor, error: Exception) -> UsageLook:
    if not isinstance(error, GpuhookError):
        error = fault("GH2560", vendor=vendor.title, reason=str(error) or type(error).__name__)
    return UsageLook(trouble=error)


def _merged(looks: Mapping[str, UsageLook]) -> NodeDevices:
    present = [look for look in looks.values() if look.has_driver]
    absences = [look.trouble for look in looks.values() if look.trouble is not None]
    return NodeDevices(
        merged({name: look.devices for name, look in looks.items()}),
        tuple(look.trouble for look in present if look.trouble is not None),
        absence=None if present else next(iter(absences), None),
        warnings=tuple(text for look in looks.values() for text in look.warnings),
    )
