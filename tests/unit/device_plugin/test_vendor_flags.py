# SPDX-License-Identifier: Apache-2.0
"""The flags of each vendor."""

from __future__ import annotations

from gpuhook.device_plugin.config.configuration import AmdFlags, Flags, PluginFlags
from gpuhook.device_plugin.vendor_flags import VendorFlags, vendor_flags

FLAGS = Flags(
    mig_strategy="mixed",
    plugin=PluginFlags(device_list_strategy=("cdi-cri", "envvar")),
    amd=AmdFlags("none", 7, ("cdi-cri", "device-specs")),
)


def test_flags_have_the_names_of_the_vendors_plugins() -> None:
    assert vendor_flags(FLAGS, "nvidia") == VendorFlags("mixed", ("envvar", "cdi-cri"))
    assert vendor_flags(FLAGS, "amd") == VendorFlags("none", ("cdi-cri", "device-specs"), 7)


def test_vendor_without_flags_needs_no_runtime() -> None:
    assert vendor_flags(FLAGS, "third") == VendorFlags("single", ("device-specs",))
