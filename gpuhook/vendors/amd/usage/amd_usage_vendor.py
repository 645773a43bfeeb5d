# SPDX-License-Identifier: Apache-2.0
"""AMD's answers about the users of GPUs and about memory limits (vendors/interfaces)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from gpuhook.vendors.interfaces.memory_interface import FindLibrary, ProcessReader
    from gpuhook.vendors.interfaces.usage_interface import ContainerTraces
    from gpuhook.vendors.plugin.vendor_part import VendorPart
    from gpuhook.vendors.usage.device_isolation import Isolation, SharedUse
    from gpuhook.vendors.usage.limit_device import LimitDevice, LimitSupport
    from gpuhook.vendors.usage.usage_device import UsageDevice, UsageLook


class AmdUsageVendor:
    """Devices in use, the processes and containers on them, and their memory limits."""

    @property
    def traces(self) -> ContainerTraces:
        """AMD shares the names of DRM nodes with other drivers."""
        from gpuhook.vendors.amd.usage import amd_traces

        return amd_traces

    def opened_usage(
        self,
        library: FindLibrary,  # noqa: ARG002 # AMD's usage needs none
    ) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Read sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.opened()

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the devices of the key `amd`."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.file_devices(name)

    def noted_nodes(self) -> dict[str, str]:
        """Return nothing: sysfs has the devices."""
        return {}

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:  # noqa: ARG002
        """Return the GPUs and partitions in sysfs."""
        from gpuhook.vendors.amd.system import vram_support

        return vram_support.limit_devices(host_root)

    def process_reader(self, part: VendorPart, host_root: str) -> ProcessReader | None:
        """Return what reads KFD and the fdinfo of DRM clients."""
        from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
        from gpuhook.vendors.amd.usage.part_processes import KernelProcesses

        node = part.inventory
        return KernelProcesses(host_root) if isinstance(node, AmdNode) and node.gpus else None

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:  # noqa: ARG002
        """Return whether the kernel's controller dmem limits the memory of this node's GPUs."""
        from gpuhook.vendors.amd.system import vram_support

        return vram_support.limit_support(host_root)

    def is_device_id(self, name: str) -> bool:
        """Return whether a name is that of a partition; a PCI address may be any device's."""
        from gpuhook.vendors.amd.hot import amd_sysfs

        return amd_sysfs.partition_id(name) == name

    def noted_turns(self) -> dict[str, dict[str, str]]:
        """Return nothing: amdgpu has no setting for them."""
        return {}

    def isolation(self, use: SharedUse) -> Isolation:
        """Return the sentences of a GPU, or of a part of one."""
        from gpuhook.vendors.amd.usage import amd_isolation

        return amd_isolation.isolation_of(use)
