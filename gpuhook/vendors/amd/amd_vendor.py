# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.usage_device import UsageDevice
    from gpuhook.vendors.vendor_labels import VendorLabels


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"

    @property
    def label_kinds(self) -> tuple[str, ...]:
        """The options of AMD's node labeller."""
        from gpuhook.vendors.amd.labels import amd_labels

        return amd_labels.KINDS

    @property
    def default_label_kinds(self) -> tuple[str, ...]:
        """The options that AMD's operator sets."""
        from gpuhook.vendors.amd.labels import amd_labels

        return amd_labels.DEFAULT_KINDS

    def labels(
        self, inventory: AmdNode, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return the labels of AMD's node labeller."""
        from gpuhook.vendors.amd.labels import amd_labels, asic_family, firmware_versions

        if host_root is None:
            return amd_labels.labels(inventory, kinds)
        root = host_root.rstrip("/")
        node = asic_family.with_families(inventory, root) if "family" in kinds else inventory
        firmware = []
        if "firmware" in kinds:
            addresses = [gpu.pci_address for gpu in node.gpus if gpu.devices]
            firmware = [firmware_versions.firmware_versions(root, one) for one in addresses]
        return amd_labels.labels(node, kinds, firmware)

    def kernel_inventory(self, host_root: str, dump: str | None = None) -> AmdNode | None:
        """Return the inventory from sysfs and KFD."""
        from gpuhook.vendors.amd.inventory import amd_dump, sysfs_inventory

        if dump is not None:
            node = amd_dump.load(dump)
        else:
            node = sysfs_inventory.read(host_root, host_root)
        return node if node.gpus else None

    def usage(self, inventory: AmdNode, host_root: str) -> tuple[UsageDevice, ...]:
        """Return the usage from sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_usage

        return amd_usage.usage(host_root, inventory)
