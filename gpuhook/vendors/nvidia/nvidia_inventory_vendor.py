# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers on inventories, which are its own model (inventory_interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.nvidia.inventory.inventory import Node
    from gpuhook.vendors.usage_device import UsageDevice
    from gpuhook.vendors.vendor_inventory import (
        DriverVersion,
        NodeDescription,
        NodePlace,
        VendorInventory,
    )


class NvidiaInventoryVendor:
    """The devices and the driver of an inventory, and the node that it describes."""

    def owns(self, inventory: object) -> bool:
        from gpuhook.vendors.nvidia.inventory.inventory import Node

        return isinstance(inventory, Node)

    def read_inventory(self, place: NodePlace) -> VendorInventory:
        """Return what the driver reports."""
        from gpuhook.vendors.nvidia import inventory_tables

        return inventory_tables.read(place)

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return what a document has at its top."""
        from gpuhook.vendors.nvidia import inventory_tables

        return inventory_tables.of_document(document, file)

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no NVIDIA GPUs, "" if it may have some."""
        from gpuhook.vendors.nvidia.hot import host_fingerprint

        if inventory is None:
            return host_fingerprint.absence(host_root)
        from gpuhook.vendors.nvidia.inventory import dump_file

        return "" if dump_file.load(inventory).gpus else host_fingerprint.NO_GPU

    def known_inventory(self) -> Node | None:
        """Return what generate-cdi recorded."""
        from gpuhook.vendors.nvidia.usage import nvidia_devices

        return nvidia_devices.recorded_node()

    def inventory_devices(self, inventory: Node) -> tuple[UsageDevice, ...]:
        """Return the GPUs and the MIG instances."""
        from gpuhook.vendors.nvidia.usage import nvidia_devices

        return nvidia_devices.of_node(inventory)

    def driver_version(self, inventory: Node) -> DriverVersion:
        """Return the version of the user space, and that of CUDA."""
        from gpuhook.vendors.vendor_inventory import DriverVersion as Version

        return Version(inventory.driver.version, inventory.driver.cuda)

    def described_node(
        self,
        inventory: Node,
        settings: Settings,
        *,
        is_here: bool = True,
        may_be_empty: bool = False,
    ) -> NodeDescription:
        """Return the node with a spec of its GPUs and the driver's files."""
        from gpuhook.vendors.nvidia.spec.described_node import DescribedNode
        from gpuhook.vendors.vendor_inventory import NodeDescription as Description

        node = DescribedNode(
            inventory, settings, is_elsewhere=not is_here, may_be_empty=may_be_empty
        )
        return Description(node, node.warnings)
