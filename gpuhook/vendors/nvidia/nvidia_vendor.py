# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.vendors.usage_device import UsageDevice
    from gpuhook.vendors.vendor_device import NamedDevices, NamingRules
    from gpuhook.vendors.vendor_labels import VendorLabels
    from gpuhook.vendors.vendor_part import (
        AllocationWords,
        DeviceCheck,
        ExporterWords,
        VendorPart,
    )


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"
    exporter: ExporterWords | None = None
    unshared: Mapping[str, str] = {}

    @property
    def allocation_words(self) -> AllocationWords:
        from gpuhook.vendors.nvidia.hot.vocabulary import PLUGIN_VENDOR, VOCABULARY
        from gpuhook.vendors.vendor_part import AllocationWords

        words = VOCABULARY
        return AllocationWords(self.name, words.devices_env, words.mount_prefix, PLUGIN_VENDOR)

    def owns(self, inventory: object) -> bool:
        from gpuhook.vendors.nvidia.inventory.inventory import Node

        return isinstance(inventory, Node)

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        from gpuhook.vendors.nvidia.gpu import gpu_resources

        return gpu_resources.named_devices(inventory, rules)

    def unusable(self, inventory: Any) -> dict[str, str]:
        from gpuhook.vendors.nvidia.gpu import gpu_resources

        return gpu_resources.unusable(inventory)

    def plugin_part(self, host_root: str, dev_root: str | None) -> VendorPart | None:
        """Return None: the plugin queries NVML, whose sessions and events its services share."""
        del host_root, dev_root
        return None

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        return last if now is None else now

    def dumped_part(self, name: str) -> VendorPart | None:
        """Return None, as plugin_part()."""
        del name
        return None

    def plugin_token(self, host_root: str) -> str:
        del host_root
        return ""

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        """Return nothing: the driver reports faults by events."""
        del part, host_root, dev_root
        return {}

    def unenforced_limits(self, host_root: str) -> tuple[str, str]:
        """Return "": the plugin queries the driver of its snapshot."""
        del host_root
        return "", ""

    label_kinds: tuple[str, ...] = ()
    default_label_kinds: tuple[str, ...] = ()

    def labels(
        self, part: VendorPart, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return none: NVIDIA's labels describe the offer (device_plugin/labels/node_labels.py)."""
        from gpuhook.vendors.vendor_labels import VendorLabels

        del part, kinds, host_root
        return VendorLabels()

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return none: the plugin queries NVML."""
        del part, host_root
        return ()
