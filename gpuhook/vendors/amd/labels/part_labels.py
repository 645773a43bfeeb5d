# SPDX-License-Identifier: Apache-2.0
"""The labels of AMD's part of a node: of its devices, and of how they are offered."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from gpuhook.vendors.amd.hot.amd_words import VENDOR
from gpuhook.vendors.amd.labels import amd_labels, asic_family, firmware_versions
from gpuhook.vendors.labels import sharing_labels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.labels.vendor_labels import LabelOffer, VendorLabels
    from gpuhook.vendors.vendor_part import VendorPart


def part_labels(part: VendorPart, offer: LabelOffer, host_root: str | None) -> VendorLabels:
    """Return the labels; without `host_root` those that need no file of the node."""
    node = amd_labels.usable(cast("AmdNode", part.inventory), part.lost, part.trouble)
    unread, firmware, kinds = "", [], offer.kinds
    if host_root is None:
        unread = amd_labels.FIRMWARE if "firmware" in kinds else ""
    else:
        root = host_root.rstrip("/")
        if "family" in kinds:
            node = asic_family.with_families(node, root)
        if "firmware" in kinds:
            addresses = [gpu.pci_address for gpu in node.gpus]
            firmware = [firmware_versions.firmware_versions(root, one) for one in addresses]
    found = _with_sharing(amd_labels.labels(node, kinds, firmware), node, offer)
    return replace(found, unread=unread)


def _with_sharing(found: VendorLabels, node: AmdNode, offer: LabelOffer) -> VendorLabels:
    """Return the labels with those of how the devices of `node` are offered."""
    usable = {device.id for gpu in node.gpus for device in gpu.devices}
    groups = sharing_labels.sharing_groups(offer.of(usable))
    return replace(
        found,
        values=found.values | sharing_labels.sharing_labels(VENDOR, groups),
        names=f"{found.names}|{sharing_labels.sharing_names(VENDOR)}",
        model=groups[0].model if groups else "",
    )
