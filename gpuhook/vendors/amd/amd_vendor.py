# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.vendor_device import NamedDevices, NamingRules
    from gpuhook.vendors.vendor_part import (
        AllocationWords,
        DeviceCheck,
        ExporterWords,
        VendorPart,
    )

_EXPORTER = "/var/lib/amd-metrics-exporter/amdgpu_device_metrics_exporter_grpc.socket"
_MOUNTS = "/var/run/amd-container-devices"
_SLICES = "amdgpu has no setting for it"


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"
    unshared: Mapping[str, str] = {
        "mps": "AMD GPUs have no MPS",
        "timeSlice": _SLICES,
        "computeMode": _SLICES,
    }

    @property
    def allocation_words(self) -> AllocationWords:
        from gpuhook.vendors.vendor_part import AllocationWords

        cdi_vendor = f"k8s.device-plugin.{self.domain}"
        return AllocationWords(self.name, "AMD_VISIBLE_DEVICES", _MOUNTS, cdi_vendor)

    @property
    def exporter(self) -> ExporterWords | None:
        from gpuhook.vendors.vendor_part import ExporterWords

        packages = ("metricssvc", "gpumetricssvc")
        return ExporterWords(_EXPORTER, tuple(f"/{name}.MetricsService/List" for name in packages))

    def owns(self, inventory: object) -> bool:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode

        return isinstance(inventory, AmdNode)

    def named_devices(self, inventory: Any, rules: NamingRules) -> NamedDevices:
        from gpuhook.vendors.amd.plugin import amd_resources

        return amd_resources.named_devices(inventory, rules)

    def unusable(self, inventory: Any) -> dict[str, str]:
        from gpuhook.vendors.amd.plugin import amd_resources

        return amd_resources.unusable(inventory)

    def plugin_part(self, host_root: str, dev_root: str | None) -> VendorPart | None:
        from gpuhook.vendors.amd.plugin import amd_part

        return self._part(amd_part.inventory(host_root, dev_root or host_root))

    def with_lost(self, now: VendorPart | None, last: VendorPart) -> VendorPart:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.with_lost(now, last)

    def dumped_part(self, name: str) -> VendorPart | None:
        from gpuhook.vendors.amd.inventory import amd_dump

        return self._part(amd_dump.load(name))

    def _part(self, node: AmdNode) -> VendorPart | None:
        from gpuhook.vendors.amd.plugin import amd_part

        return amd_part.part(node) if node.gpus or node.driver is not None else None

    def plugin_token(self, host_root: str) -> str:
        from gpuhook.vendors.amd.hot import amd_token

        return amd_token.token(host_root)

    def check_devices(
        self, part: VendorPart, host_root: str, dev_root: str | None
    ) -> dict[str, DeviceCheck]:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
        from gpuhook.vendors.amd.plugin import amd_health

        if not isinstance(part.inventory, AmdNode):
            return {}
        return amd_health.check_devices(part.inventory, host_root, dev_root)

    def free_memory(self, part: VendorPart, uuid: str, host_root: str) -> int | None:
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
        from gpuhook.vendors.amd.plugin import amd_health

        node = part.inventory
        return amd_health.free_memory(node, uuid, host_root) if isinstance(node, AmdNode) else None

    def unenforced_limits(self, host_root: str) -> tuple[str, str]:
        import os

        regions = os.path.join(host_root, "sys/fs/cgroup/dmem.capacity")
        try:
            with open(regions, encoding="ascii") as file:
                if any(line.startswith("drm/") for line in file):
                    return "", ""
        except (OSError, ValueError):
            pass
        return (
            "the kernel's dmem controller has no region of a GPU",
            "use Linux 6.15 or newer with the controller dmem",
        )
