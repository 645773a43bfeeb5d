# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.vendors.spec_choices import DescribedDevices, SpecChoices


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"

    def absence(self, host_root: str, inventory: str | None = None) -> str:
        """Return why a node has no AMD GPUs, "" if it may have some."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.absence(host_root, inventory)

    def spec_maker(self) -> Callable[[SpecChoices], DescribedDevices]:
        """Return what makes a CDI spec of device nodes."""
        from gpuhook.vendors.amd.spec import amd_node

        return amd_node.describe
