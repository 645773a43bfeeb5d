# SPDX-License-Identifier: Apache-2.0
"""Dynamic Resource Allocation: how a vendor's devices look in ResourceSlices."""

from __future__ import annotations

from typing import Protocol


class DraVendor(Protocol):
    """A vendor's names for devices in Dynamic Resource Allocation."""

    @property
    def dra_driver(self) -> str:
        """The name of the driver, which selectors of claims contain: "gpu.nvidia.com"."""

    @property
    def dra_classes(self) -> tuple[tuple[str, str], ...]:
        """The device classes of the chart: (name, `type` of their devices), "gpu" or "mig"."""

    @property
    def dra_config_version(self) -> str:
        """The apiVersion of the parameters for the vendor's own driver, "" if it has none."""

    @property
    def dra_attributes(self) -> tuple[str, ...]:
        """The attributes that a device can have, without the domain of the driver."""
