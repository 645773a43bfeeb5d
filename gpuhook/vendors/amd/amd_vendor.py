# SPDX-License-Identifier: Apache-2.0
"""AMD's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from gpuhook.vendors.interface import ContainerTraces
    from gpuhook.vendors.usage_device import UsageDevice, UsageLook


class AmdVendor:
    """AMD."""

    name = "amd"
    title = "AMD"
    domain = "amd.com"

    @property
    def traces(self) -> ContainerTraces:
        """AMD shares the names of DRM nodes with other drivers."""
        from gpuhook.vendors.amd.usage import amd_traces

        return amd_traces

    def opened_usage(
        self,
        library: Callable[[], str],  # noqa: ARG002 # AMD's usage needs none
    ) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Read sysfs, KFD and procfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.opened()

    def known_devices(self) -> tuple[UsageDevice, ...]:
        """Return the devices of sysfs."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.known_devices()

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the devices of the key `amd`."""
        from gpuhook.vendors.amd.usage import amd_reading

        return amd_reading.file_devices(name)

    def noted_nodes(self) -> dict[str, str]:
        """Return nothing: sysfs has the devices."""
        return {}
