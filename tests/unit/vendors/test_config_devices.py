# SPDX-License-Identifier: Apache-2.0
"""The devices of a container by its config.json, and by the ledger where that lost its rules."""

from __future__ import annotations

from typing import Any

import pytest

from gpuhook.vendors.warm import config_devices

PATH = "/dev/nvidia3"
DENY = {"allow": False, "access": "rwm"}
MKNOD = {"allow": True, "type": "c", "major": 195, "minor": 3, "access": "m"}


@pytest.mark.parametrize(
    ("rules", "recorded", "access"),
    [
        ([DENY, MKNOD | {"access": "rw"}], (), ["rw"]),
        ([DENY], (), []),
        ([DENY], [PATH], ["rw"]),
        ([DENY], ["/dev/nvidia4"], []),
        ([DENY, MKNOD], [PATH], []),
    ],
)
def test_recorded_node_without_a_rule(
    rules: list[dict[str, Any]], recorded: list[str], access: list[str]
) -> None:
    """`podman update` writes config.json without the rules of CDI devices; the ledger has them."""
    device = {"path": PATH, "type": "c", "major": 195, "minor": 3}
    spec = {"linux": {"devices": [device], "resources": {"devices": rules}}}
    nodes = config_devices.by_config(spec, recorded).get("deviceNodes") or []
    assert [node["permissions"] for node in nodes] == access
