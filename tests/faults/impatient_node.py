# SPDX-License-Identifier: Apache-2.0
"""A node for the commands of the test process, which wait only shortly for its drivers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.simulated.node import SimulatedNode, make_node

SHORT = 0.5  # seconds
Deadline = tuple[object, str]  # a module or class, and the name of its deadline


def impatient_node(
    place: Path, profile: str, patch: pytest.MonkeyPatch, deadlines: Iterable[Deadline]
) -> SimulatedNode:
    """Make a node of a profile, which variables name until the end of the test."""
    made = make_node(place / "node", profile)
    roots = {"HOST": made.host_root, "DRIVER": made.driver_root, "DEV": made.dev_root}
    for name, value in roots.items():
        patch.setenv(f"GPUHOOK_{name}_ROOT", value)
    patch.setenv("GPUHOOK_STATE_DIR", str(place / "state"))
    for owner, name in deadlines:
        patch.setattr(owner, name, SHORT)
    return made
