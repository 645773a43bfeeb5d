# SPDX-License-Identifier: Apache-2.0
"""The names of devices in any vendor's terms."""

from __future__ import annotations

import pytest

from gpuhook.vendors.vendor_device import bus_id


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("00000000:00:1E.0", "0000:00:1e.0"),
        ("00010000:17:00.0", "10000:17:00.0"),
        ("00:1e.0", "0000:00:1e.0"),
        ("garbage", ""),
        ("00000000:00:1E.0\0", ""),
    ],
)
def test_pci_bus_id_is_converted_to_its_sysfs_name(text: str, name: str) -> None:
    assert bus_id(text) == name
