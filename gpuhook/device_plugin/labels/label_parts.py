# SPDX-License-Identifier: Apache-2.0
"""The labels of a node in parts, one by vendor: a part that fails does not affect the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from gpuhook.device_plugin.labels.label_offer import label_offer
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.labels import label_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import TypeAlias

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.plugin.vendor_part import VendorPart

    CallVendor: TypeAlias = "Callable[[Vendor, Callable[[], LabelPart]], LabelPart]"


@dataclass(frozen=True, slots=True)
class LabelPart:
    """The labels of one vendor, or the `error` why they are unknown.

    `names`, `is_owner` and `unread` are those of VendorLabels.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    names: str = ""
    is_owner: bool = False
    warnings: tuple[str, ...] = ()
    error: Exception | None = None
    unread: str = ""


def label_parts(
    parts: Collection[VendorPart],
    resources: tuple[Resource, ...],
    configuration: Configuration,
    *,
    host_root: str | None,
    call: CallVendor,
    timestamp: int | None = None,
) -> dict[str, LabelPart]:
    """Return the labels of a node by the domain of the vendor.

    `timestamp` is their start in seconds since 1970. `host_root` is None for a node that is not
    this machine. `call` reads the labels of a vendor of this machine with a deadline, because its
    driver may block.
    """

    def of_vendor(part: VendorPart) -> LabelPart:
        """Return the labels of a vendor's devices and of how they are offered."""
        vendor = vendor_of_resource(part.domain)
        limits = None
        if host_root is not None:
            limits = vendor.limit_support(lambda: part.library, host_root)
        offer = label_offer(
            vendor,
            resources,
            configuration,
            driver_limits=limits is not None and limits.holds,
            timestamp=timestamp,
            is_only=len(parts) == 1,
        )
        found = vendor.labels(part, offer, host_root)
        values = dict(found.values)
        if found.model and configuration.own.accelerator_label:
            values["accelerator"] = label_text.accelerator(found.model, vendor.name)
        return LabelPart(values, found.names, found.is_owner, found.warnings, unread=found.unread)

    def read(part: VendorPart) -> LabelPart:
        work = partial(of_vendor, part)
        return work() if host_root is None else call(vendor_of_resource(part.domain), work)

    return {part.domain: _attempt(partial(read, part)) for part in parts}


def _attempt(part: Callable[[], LabelPart]) -> LabelPart:
    """Return the result of `part`, or a part with its error."""
    try:
        return part()
    except Exception as error:  # a bug, too, concerns one vendor only
        return LabelPart(error=error)


def merged(parts: Iterable[LabelPart]) -> dict[str, str]:
    """Return the labels of all parts, sorted; the first part with a label decides its value."""
    values: dict[str, str] = {}
    for part in parts:
        values = {**part.values, **values}
    return dict(sorted(values.items()))
