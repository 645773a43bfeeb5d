# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from typing import Any, cast

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
    from gpuhook.vendors.usage_device import UsageDevice
    from gpuhook.vendors.vendor_device import NamedDevices, NamingRules
    from gpuhook.vendors.vendor_labels import VendorLabels
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

    @property
    def label_kinds(self) -> tuple[str, ...]:
        """The options of AMD's node labeller."""
        from gpuhook.vendors.amd.labels import amd_labels

        return amd_labels.KINDS

    @property
    def default_label_kinds(self) -> tuple[str, ...]:
        """The options that AMD's operator sets."""
        from gpuhook.vendors.amd.labels import amd_labels

        return amd_labels.DEFAULT_KINDS

    def labels(
        self, part: VendorPart, kinds: Collection[str], host_root: str | None
    ) -> VendorLabels:
        """Return the labels of AMD's node labeller."""
        from gpuhook.vendors.amd.labels import amd_labels, asic_family, firmware_versions

        node = amd_labels.usable(_node(part), part.lost, part.trouble)
        if host_root is None:
            return amd_labels.labels(node, kinds)
        root = host_root.rstrip("/")
        if "family" in kinds:
            node = asic_family.with_families(node, root)
        firmware = []
        if "firmware" in kinds:
            addresses = [gpu.pci_address for gpu in node.gpus]
            firmware = [firmware_versions.firmware_versions(root, one) for one in addresses]
        return amd_labels.labels(node, kinds, firmware)

    def usage(self, part: VendorPart, host_root: str) -> tuple[UsageDevice, ...]:
        """Return the usage from sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_usage

        return amd_usage.usage(host_root, _node(part))


def _node(part: VendorPart) -> AmdNode:
    """Return the inventory of one of AMD's parts."""
    node: AmdNode = cast("AmdNode", part.inventory)
    return node
