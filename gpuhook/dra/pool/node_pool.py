# SPDX-License-Identifier: Apache-2.0
"""The pool of a driver: the devices of this node, as its configuration offers and shares them."""

from __future__ import annotations

from gpuhook.dra.pool.pool_device import RESOURCE, Capacity, Pool, PoolDevice, Taint
from gpuhook.vendors.catalogue import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.dra.pool.sharing_form import SharingForm, SharingForms
    from gpuhook.vendors.plugin.dra_device import DraDevice
    from gpuhook.vendors.plugin.vendor_part import VendorPart

UNUSABLE = "unusable"  # the key of a taint, below the name of the driver


def node_pool(
    part: VendorPart, sharing: SharingForms, node: str, host_root: str | None = None
) -> Pool:
    """Return the pool of a vendor's part, ordered by PCI address.

    `sharing` is of the same inventory. A device that no container can get has a taint.
    """
    vendor = vendor_of(part.inventory)
    described = vendor.dra_devices(part, host_root)
    troubles = {**vendor.unusable(part.inventory), **part.lost}
    pairs = [
        (described.devices[uuid], form)
        for uuid, form in sharing.forms.items()
        if uuid in described.devices
    ]
    pairs.sort(key=lambda pair: pair[0].place)
    driver = vendor.dra_driver
    devices = tuple(_device(own, form, driver, troubles) for own, form in pairs)
    used = {name for device in devices for name in device.counters}
    sets = {name: own for name, own in described.counter_sets.items() if name in used}
    return Pool(driver, node, devices, sets, "" if devices else _reason(part, described.devices))


def _device(
    own: DraDevice, form: SharingForm, driver: str, troubles: Mapping[str, str]
) -> PoolDevice:
    """Return a device of the pool.

    The parts of the chip are attributes of a shared device: claims would consume capacities.
    """
    attributes, capacity = dict(own.attributes), dict(form.capacity)
    if form.is_shared:
        attributes |= own.chip
    else:
        capacity |= {name: Capacity(number) for name, number in own.chip.items()}
    if form.resource:
        attributes[RESOURCE] = form.resource
    is_unusable = form.device.uuid in troubles
    return PoolDevice(
        own.name,
        form.device,
        attributes,
        capacity,
        {} if form.is_shared else own.counters,
        (Taint(f"{driver}/{UNUSABLE}"),) if is_unusable else (),
        is_shared=form.is_shared,
    )


def _reason(part: VendorPart, known: Mapping[str, DraDevice]) -> str:
    """Return why a pool has no device."""
    if part.error is not None:
        return part.error.message
    if part.trouble:
        return part.trouble
    if known:
        return "the configuration excludes all devices of this node"
    return "the driver reports no GPU" if part.has_hardware else "this node has no GPU"
