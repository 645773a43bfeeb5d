# SPDX-License-Identifier: Apache-2.0
"""The checks of a node with a vendor's devices."""

from __future__ import annotations

from typing import Any, Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.inventory.vendor_inventory import NodePlace
    from gpuhook.vendors.vendor_checks import VendorChecks


class DoctorVendor(Protocol):
    """A vendor whose driver and devices `gpuhook doctor` examines; node_facts/ has the types."""

    def doctor_checks(self) -> VendorChecks:
        """Return the checks of the vendor's driver, device nodes and GPUs."""

    def driver_dump(self, place: NodePlace) -> dict[str, Any] | None:
        """Return the vendor's part of the inventory as its driver reports it. Raises GpuhookError.

        None if the kernel's files have all of it: support_inventory() returns that.
        """
