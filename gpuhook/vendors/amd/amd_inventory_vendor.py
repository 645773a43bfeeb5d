# SPDX-License-Identifier: Apache-2.0
"""AMD's answers on inventories, which are its own model (inventory_interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.inventory.vendor_inventory import (
        DriverVersion,
        NodeDescription,
        NodePlace,
        VendorInventory,
    )
    from gpuhook.vendors.usage.usage_device import UsageDevice


class AmdInventoryVendor:
    """The devices and the driver of an inventory, and the node that it describes."""

    def owns(self, inventory: object) -> bool:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

        return isinstance(inventory, AmdNode)

    def read_inventory(self, place: NodePlace) -> VendorInventory | None:
        """Return what the driver reports in sysfs."""
        from gpuhook.vendors.amd.inventory import amd_tables

        return amd_tables.read(place)

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return the part `amd` of a document."""
        from gpuhook.vendors.amd.inventory import amd_tables

        return amd_tables.of_document(document, file)

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no AMD GPUs, "" if it may have some."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.absence(host_root, inventory)

    def known_inventory(self) -> AmdNode:
        """Return what sysfs has."""
        from gpuhook.host.hot import state
        from gpuhook.vendors.amd.inventory import inventory_worker

        return inventory_worker.read(state.host_root(), state.host_root())

    def inventory_devices(self, inventory: AmdNode) -> tuple[UsageDevice, ...]:
        """Return the GPUs and the partitions."""
        from gpuhook.vendors.amd.usage import amd_usage

        return amd_usage.devices(inventory)

    def driver_version(self, inventory: AmdNode) -> DriverVersion:
        """Return the version of amdgpu, or that of the kernel which it is a part of."""
        from gpuhook.vendors.inventory.vendor_inventory import DriverVersion as Version

        driver = inventory.driver
        return Version(driver.version or driver.kernel if driver else None)

    def described_node(
        self,
        inventory: AmdNode,
        settings: Settings,  # noqa: ARG002 # they concern driver files
        *,
        is_here: bool = True,
        may_be_empty: bool = False,
    ) -> NodeDescription:
        """Return the node with a spec of its device nodes."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.described_node(inventory, is_here=is_here, may_be_empty=may_be_empty)
