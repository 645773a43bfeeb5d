# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any

from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuhook.vendors.interface import FindLibrary
    from gpuhook.vendors.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.vendor_device import ComputeShare, NamedDevices, NamingRules
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

    def compute_mask(self, shares: Sequence[ComputeShare]) -> dict[str, str]:
        """Return nothing: MPS limits the threads of a client."""
        del shares
        return {}

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:
        """Return the GPUs that NVML reports. Raises GH1200 to GH1206."""
        from gpuhook.vendors.nvidia.nvml import limited_gpus

        return limited_gpus.limit_devices(library(), host_root)

    def process_memory(self, host_root: str) -> Mapping[str, Mapping[int, int | None]]:  # noqa: ARG002
        """Return nothing: NVML is asked."""
        return {}

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:  # noqa: ARG002
        """Return whether the driver has the call, and the cgroups what it needs."""
        from gpuhook.vendors.limit_device import LimitSupport
        from gpuhook.vendors.nvidia.driver import driver_support

        try:
            return driver_support.driver_support(library())
        except GpuhookError as error:
            return LimitSupport(reason=error.message, remedy=error.hint, is_present=False)

    exporter: ExporterWords | None = None
    unshared: Mapping[str, str] = {"computeMask": "NVIDIA's driver has no such variable"}

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
