# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.interface import FindLibrary
    from gpuhook.vendors.limit_device import LimitDevice, LimitSupport


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"

    def limit_devices(self, library: FindLibrary, host_root: str) -> list[LimitDevice]:  # noqa: ARG002
        """Return the GPUs and partitions in sysfs."""
        from gpuhook.vendors.amd.system import vram_support

        return vram_support.limit_devices(host_root)

    def process_memory(self, host_root: str) -> Mapping[str, Mapping[int, int | None]]:
        """Return what KFD and the fdinfo of DRM clients show."""
        from gpuhook.vendors.amd.inventory import sysfs_inventory
        from gpuhook.vendors.amd.usage import amd_processes

        node = sysfs_inventory.read(host_root, host_root)
        return amd_processes.processes(host_root, node)

    def limit_support(self, library: FindLibrary, host_root: str) -> LimitSupport:  # noqa: ARG002
        """Return whether the kernel's controller dmem limits the memory of this node's GPUs."""
        from gpuhook.vendors.amd.system import vram_support

        return vram_support.limit_support(host_root)
