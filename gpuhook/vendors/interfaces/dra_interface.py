# SPDX-License-Identifier: Apache-2.0
"""Dynamic Resource Allocation: how a vendor's devices look in ResourceSlices."""

from __future__ import annotations

from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.plugin.dra_device import DraDevices
    from gpuhook.vendors.plugin.vendor_part import VendorPart


class DraVendor(Protocol):
    """A vendor's names for devices in Dynamic Resource Allocation."""

    @property
    def dra_driver(self) -> str:
        """The name of the driver, which selectors of claims contain: "gpu.nvidia.com"."""

    @property
    def dra_config_version(self) -> str:
        """The apiVersion of the parameters for the vendor's own driver, "" if it has none."""

    def dra_devices(self, part: VendorPart, host_root: str | None) -> DraDevices:
        """Return the names and facts of the devices of a part, named as by the vendor's driver.

        None as `host_root` is a part of an inventory file.
        """
