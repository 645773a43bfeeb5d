# SPDX-License-Identifier: Apache-2.0
"""The feature flags of generate-cdi."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.vendors.nvidia.generate import toolkit_switches
from gpuhook.vendors.nvidia.spec.generate_options import Choices


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("enable-explicit-driver-libraries", "explicit_libraries", True),
        ("enable-coherent-annotations", "coherent", True),
        ("no-additional-gids-for-device-nodes", "additional_gids", False),
        ("disable-ipc-discoverer", "ipc", False),
        ("disable-multiple-csv-devices", "multiple_csv_devices", False),
    ],
)
def test_feature_flag_changes_one_choice(flag: str, field: str, value: bool) -> None:
    """Each feature flag is one field of the choices; the others do not change."""

    def chosen(*flags: str) -> dict[str, Any]:
        given = {
            "feature_flag": flags, "disable_hook": (), "enable_hook": (), "ldconfig_path": None,
            "hooks": "gpuhook",
        }  # fmt: skip
        return toolkit_switches.choices(given, "csv", is_here=False)[0]

    plain = chosen()
    assert Choices(**plain) == Choices()
    assert chosen(flag) == {**plain, field: value}
