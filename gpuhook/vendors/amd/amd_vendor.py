# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from gpuhook.vendors.interface import ContainerTraces
    from gpuhook.vendors.spec_choices import DescribedDevices, SpecChoices
    from gpuhook.vendors.support_facts import SupportFacts
    from gpuhook.vendors.usage_device import UsageDevice, UsageLook
    from gpuhook.vendors.vendor_inventory import NodePlace, VendorInventory


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"

    def support_facts(self) -> SupportFacts:
        """Return the files and the messages of the kernel that a support bundle has."""
        from gpuhook.vendors.amd.system import amd_support

        return amd_support.support_facts()

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:
        """Return the inventory without serial numbers, None without a driver."""
        from gpuhook.vendors.amd.system import amd_support

        return amd_support.support_inventory(host_root, dev_root)

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no AMD GPUs, "" if it may have some."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.absence(host_root, inventory)

    def spec_maker(self) -> Callable[[SpecChoices], DescribedDevices]:
        """Return what makes a CDI spec of device nodes."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.describe

    def read_inventory(self, place: NodePlace) -> VendorInventory | None:
        """Return what the driver reports in sysfs."""
        from gpuhook.vendors.amd.inventory import amd_tables

        return amd_tables.read(place)

    def dumped_inventory(self, document: dict[str, Any], file: str) -> VendorInventory | None:
        """Return the part `amd` of a document."""
        from gpuhook.vendors.amd.inventory import amd_tables

        return amd_tables.of_document(document, file)

    @property
    def traces(self) -> ContainerTraces:
        """AMD shares the names of DRM nodes with other drivers."""
        from gpuhook.vendors.amd.usage import amd_traces

        return amd_traces

    def opened_usage(
        self,
        library: Callable[[], str],  # noqa: ARG002 # AMD's usage needs none
    ) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Read sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.opened()

    def known_devices(self) -> tuple[UsageDevice, ...]:
        """Return the devices of sysfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.known_devices()

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the devices of the key `amd`."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.file_devices(name)

    def noted_nodes(self) -> dict[str, str]:
        """Return nothing: sysfs has the devices."""
        return {}

    def isolation(
        self, profile: str, sharing: str, memory_by: str, limit: str
    ) -> dict[str, str] | None:
        """Return the sentences of a GPU or partition."""
        from gpuhook.vendors.amd.usage import amd_isolation

        return amd_isolation.isolation(profile, sharing, memory_by, limit)
