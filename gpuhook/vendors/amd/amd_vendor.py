# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.support_facts import SupportFacts


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
