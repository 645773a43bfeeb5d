# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.vendors.usage_device import UsageDevice
    from gpuhook.vendors.vendor_labels import VendorLabels


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"
    label_kinds = default_label_kinds = ()

    def labels(
        self,
        inventory: object,  # noqa: ARG002 # the interface's
        kinds: Collection[str],  # noqa: ARG002
        host_root: str | None,  # noqa: ARG002
    ) -> VendorLabels:
        """Return none: NVIDIA's labels describe the offer (device_plugin/labels/node_labels.py)."""
        from gpuhook.vendors.vendor_labels import VendorLabels

        return VendorLabels()

    def usage(
        self,
        inventory: object,  # noqa: ARG002 # the interface's
        host_root: str,  # noqa: ARG002
    ) -> tuple[UsageDevice, ...]:
        """Return none: the kernel has no files about it, and NVML is queried instead."""
        return ()

    def kernel_inventory(
        self,
        host_root: str,  # noqa: ARG002 # the interface's
        dump: str | None = None,  # noqa: ARG002
    ) -> None:
        """Return None: NVML has the facts (vendors/nvidia/discover.py)."""
        return
