# SPDX-License-Identifier: Apache-2.0
"""All checks, one module of them per subject; in the order in which they are listed."""

from __future__ import annotations

from gpuhook.diagnose.doctor.checks import (
    device_links,
    devices,
    driver,
    driver_files,
    fabric,
    gpus,
    graphics,
    spec_devices,
    spec_files,
    specs,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.diagnose.doctor.check import Check


def checks() -> tuple[Check, ...]:
    """Return every check of doctor."""
    return (
        *driver.CHECKS,
        *driver_files.CHECKS,
        *devices.CHECKS,
        *device_links.CHECKS,
        *gpus.CHECKS,
        *fabric.CHECKS,
        *spec_files.CHECKS,
        *specs.CHECKS,
        *spec_devices.CHECKS,
        *graphics.CHECKS,
    )
