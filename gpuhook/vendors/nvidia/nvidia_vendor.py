# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's answers to the questions of commands and services (Vendor in vendors/interface.py)."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from gpuhook.vendors.interface import ContainerTraces
    from gpuhook.vendors.usage_device import UsageDevice, UsageLook


class NvidiaVendor:
    """NVIDIA."""

    name = "nvidia"
    title = "NVIDIA"
    domain = "nvidia.com"

    @property
    def traces(self) -> ContainerTraces:
        """NVIDIA's nodes have their own names."""
        from gpuhook.vendors.nvidia.spec import injection_traces

        return injection_traces

    def opened_usage(
        self, library: Callable[[], str]
    ) -> AbstractContextManager[Callable[[], UsageLook]]:
        """Call the driver through NVML."""
        from gpuhook.vendors.nvidia.usage import nvidia_usage

        return nvidia_usage.opened(library)

    def known_devices(self) -> tuple[UsageDevice, ...]:
        """Return the devices that generate-cdi recorded."""
        from gpuhook.vendors.nvidia.usage import nvidia_usage

        return nvidia_usage.recorded_devices()

    def file_devices(self, name: str) -> tuple[UsageDevice, ...]:
        """Return the devices of the dump."""
        from gpuhook.vendors.nvidia.inventory import dump_file
        from gpuhook.vendors.nvidia.usage import nvidia_devices

        return nvidia_devices.of_node(dump_file.load(name))

    def noted_nodes(self) -> dict[str, str]:
        """Return the record of generate-cdi."""
        from gpuhook.vendors.nvidia.hot import node_json

        return node_json.uuids()
