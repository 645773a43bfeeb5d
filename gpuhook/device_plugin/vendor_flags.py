# SPDX-License-Identifier: Apache-2.0
"""The flags of each vendor, which have the names of its own device plugin."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.configuration import LIST_STRATEGIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.configuration import Flags


@dataclass(frozen=True, slots=True)
class VendorFlags:
    """How the devices of a vendor are named, and how an allocation reaches the runtime.

    `check_interval` is in seconds between two checks of their health, 0: that of all vendors.
    """

    naming_strategy: str
    list_strategies: tuple[str, ...]
    check_interval: int = 0


def vendor_flags(flags: Flags, vendor: str) -> VendorFlags:
    """Return the flags of the vendor with a name; any runtime can serve one without its own."""
    chosen = flags.plugin.device_list_strategy
    known = {
        "nvidia": VendorFlags(flags.mig_strategy, tuple(s for s in LIST_STRATEGIES if s in chosen)),
        "amd": VendorFlags(
            flags.amd.resource_naming_strategy, flags.amd.device_list_strategy, flags.amd.pulse
        ),
    }
    return known.get(vendor, VendorFlags("single", ("device-specs",)))
