# SPDX-License-Identifier: Apache-2.0
"""Healthy nodes, made once for each profile."""

from __future__ import annotations

import pytest

from tests.doctor import case

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], case.FaultCase]:
    """Return a function that makes a healthy node of a profile once; tests must not change it."""
    made: dict[str, case.FaultCase] = {}

    def node_of(profile: str) -> case.FaultCase:
        if profile not in made:
            made[profile] = case.make(tmp_path_factory.mktemp(profile), profile)
        return made[profile]

    return node_of


@pytest.fixture
def fresh(
    healthy: Callable[[str], case.FaultCase], tmp_path: Path
) -> Callable[[str], case.FaultCase]:
    """Return a function that copies the healthy node of a profile."""

    def copy_of(profile: str = "t4") -> case.FaultCase:
        place = tmp_path / profile
        place.mkdir()
        return case.copied(healthy(profile), place)

    return copy_of
