# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node, for the commands that list them or describe them in a CDI spec."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.inventory.gpu_summary import GpuSummary
    from gpuhook.vendors.inventory.support_facts import SupportFacts
    from gpuhook.vendors.inventory.vendor_inventory import (
        DriverVersion,
        NodeDescription,
        NodePlace,
        VendorInventory,
    )
    from gpuhook.vendors.spec.spec_choices import DescribedDevices, SpecChoices
    from gpuhook.vendors.usage.usage_device import UsageDevice


class InventoryVendor(Protocol):
    """A vendor's GPUs on a node or in a dump, without their usage."""

    def read_inventory(self, place: NodePlace) -> VendorInventory | None:
        """Return what the node at `place` has, None without a driver; raises the vendor's faults.

        It may take as long as the driver does.
        """

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return what the document of an inventory has, None if it has nothing of the vendor.

        Raises GH1502 with the name `file` if it cannot be a node's.
        """

    def owns(self, inventory: object) -> bool:
        """Return whether an inventory is of this vendor's model."""

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no GPUs of the vendor, "" if it may have some.

        The node is the one below `host_root`, or that of a dump or profile.
        """

    def driver_roots(self, search_paths: tuple[str, ...]) -> tuple[str, ...]:
        """Return the roots of this host with a user space of the driver, the preferred one first.

        `search_paths` are directories below each root. () for a vendor whose driver has none.
        """

    def spec_maker(self) -> Callable[[SpecChoices], DescribedDevices] | None:
        """Return the function that makes a CDI spec, None if a spec also has driver files."""

    def summary(self, host_root: str, inventory: object | None) -> GpuSummary | None:
        """Return the GPUs of a node for `gpuhook setup`, None without any.

        `inventory` is what doctor has read of the node, which may be another vendor's.
        """

    def support_facts(self) -> SupportFacts:
        """Return the files and the messages of the kernel that a support bundle has."""

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:
        """Return the inventory for a support bundle, by the kernel's files.

        None: the node has no driver of the vendor, or the bundle has the driver's answers.
        """

    def known_inventory(self) -> object | None:
        """Return the inventory of this node, None if it is unknown; the driver is not asked."""

    def inventory_devices(self, inventory: Any) -> tuple[UsageDevice, ...]:
        """Return the devices in an inventory without their usage."""

    def driver_version(self, inventory: Any) -> DriverVersion:
        """Return the version of the driver in an inventory."""

    def described_node(
        self,
        inventory: Any,
        settings: Settings,
        *,
        is_here: bool = True,
        may_be_empty: bool = False,
    ) -> NodeDescription:
        """Return the node of an inventory, with the spec that generate-cdi would write.

        Unless `is_here`, the numbers of device nodes are those of the inventory. Raises what
        generate-cdi raises: GH1513 without GPUs, unless it `may_be_empty`.
        """
