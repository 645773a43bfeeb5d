# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.support_facts import SupportFacts


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"

    def support_facts(self) -> SupportFacts:
        """Return nothing: the bundle's own list has NVIDIA's files."""
        from gpuhook.vendors.support_facts import SupportFacts as Facts

        return Facts()

    def support_inventory(self, host_root: str, dev_root: str) -> dict[str, Any] | None:  # noqa: ARG002
        """Return None: NVML's answers are a reading of their own."""
        return None
