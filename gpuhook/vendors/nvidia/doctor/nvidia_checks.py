# SPDX-License-Identifier: Apache-2.0
"""The checks of nodes with NVIDIA GPUs."""

from __future__ import annotations

from gpuhook.vendors.nvidia.doctor import (
    device_checks,
    device_link_checks,
    driver_checks,
    driver_file_checks,
    fabric_checks,
    gpu_checks,
)
from gpuhook.vendors.vendor_checks import VendorChecks

VENDOR_CHECKS = VendorChecks(
    (
        *driver_checks.CHECKS,
        *driver_file_checks.CHECKS,
        *device_checks.CHECKS,
        *device_link_checks.CHECKS,
        *gpu_checks.CHECKS,
        *fabric_checks.CHECKS,
    ),
    {"driver": "Driver", "devices": "Device nodes", "gpus": "GPUs"},
    presence="driver.gpu",
)
