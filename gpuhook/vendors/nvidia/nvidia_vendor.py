# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.vendors.interface import FindLibrary
    from gpuhook.vendors.limit_device import LimitDevice, LimitSupport


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"

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
