# SPDX-License-Identifier: Apache-2.0
"""The labels of a node in parts, one by vendor: a part that fails does not affect the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from gpuhook.device_plugin.labels import label_text, sharing_labels
from gpuhook.device_plugin.labels.node_labels import labels
from gpuhook.vendors.catalogue import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeAlias

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.labels.node_labels import LabelFacts
    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.nvidia.inventory.inventory import Node
    from gpuhook.vendors.vendor_part import VendorPart

    CallVendor: TypeAlias = "Callable[[Vendor, Callable[[], LabelPart]], LabelPart]"


@dataclass(frozen=True, slots=True)
class LabelPart:
    """The labels of one vendor, or the `error` why they are unknown.

    `owned` is the pattern of the names that are removed unless they are in `values`, "" for none.
    `unread` is the pattern of those whose values are unknown for a node that is not this machine.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    owned: str = ""
    warnings: tuple[str, ...] = ()
    error: Exception | None = None
    unread: str = ""


def label_parts(
    node: Node,
    parts: Iterable[VendorPart],
    resources: tuple[Resource, ...],
    configuration: Configuration,
    *,
    facts: Callable[[], LabelFacts],
    host_root: str | None,
    call: CallVendor,
    timestamp: int | None = None,
) -> dict[str, LabelPart]:
    """Return the labels of a node by vendor, those of node_labels.labels() first.

    These are left out on a node that has only other vendors' GPUs, described by `parts`.
    `host_root` is None for a node that is not this machine. `call` reads the labels of a vendor of
    this machine with a deadline, because its driver may block.
    """
    found = {}
    for part in parts:
        read = partial(_vendor_part, part, resources, configuration, host_root)
        ask = read if host_root is None else partial(call, vendor_of(part.inventory), read)
        found[part.domain] = _attempt(ask)
    if found and not node.gpus and node.driver.version is None:
        return found

    def first() -> LabelPart:
        return LabelPart(labels(node, resources, configuration, facts(), timestamp))

    return {"": _attempt(first), **found}


def _attempt(part: Callable[[], LabelPart]) -> LabelPart:
    """Return the result of `part`, or a part with its error."""
    try:
        return part()
    except Exception as error:  # a bug, too, concerns one vendor only
        return LabelPart(error=error)


def _vendor_part(
    part: VendorPart,
    resources: tuple[Resource, ...],
    configuration: Configuration,
    host_root: str | None,
) -> LabelPart:
    """Return the labels of a vendor's devices and of how they are offered."""
    vendor = vendor_of(part.inventory)
    found = vendor.labels(part, configuration.own.device_labels, host_root)
    groups = sharing_labels.sharing_groups(
        resources,
        found.devices,
        configuration,
        driver_limits=host_root is not None and vendor.limit_support(str, host_root).holds,
    )
    values = found.values | sharing_labels.sharing_labels(vendor.domain, groups)
    if groups and configuration.own.accelerator_label:
        values["accelerator"] = label_text.accelerator(groups[0].model, vendor.name)
    owned = f"{found.owned}|{sharing_labels.owned(vendor.domain)}" if found.owned else ""
    return LabelPart(values, owned, found.warnings, unread=found.unread)


def merged(parts: Iterable[LabelPart]) -> dict[str, str]:
    """Return the labels of all parts, sorted; the first part with a label decides its value."""
    values: dict[str, str] = {}
    for part in parts:
        values = {**part.values, **values}
    return dict(sorted(values.items()))
