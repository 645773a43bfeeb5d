# SPDX-License-Identifier: Apache-2.0
"""The checks of nodes with AMD GPUs."""

from __future__ import annotations

from gpuhook.vendors.amd.doctor import amd_devices, amd_driver, amd_gpus, amd_specs, amd_stack
from gpuhook.vendors.vendor_checks import VendorChecks

VENDOR_CHECKS = VendorChecks(
    (
        *amd_driver.CHECKS,
        *amd_devices.CHECKS,
        *amd_gpus.CHECKS,
        *amd_specs.CHECKS,
        *amd_stack.CHECKS,
    ),
    {"amd": "AMD GPUs"},
    presence=amd_driver.GPU,
)
