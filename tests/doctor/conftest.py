# SPDX-License-Identifier: Apache-2.0
"""Healthy nodes, made once for each profile."""

from __future__ import annotations

import pytest

from tests.doctor import scene

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], scene.Scene]:
    """Give what makes a healthy node of a profile, once; it is to be copied, not changed."""
    made: dict[str, scene.Scene] = {}

    def of(profile: str) -> scene.Scene:
        if profile not in made:
            made[profile] = scene.make(tmp_path_factory.mktemp(profile), profile)
        return made[profile]

    return of


@pytest.fixture
def fresh(healthy: Callable[[str], scene.Scene], tmp_path: Path) -> Callable[[str], scene.Scene]:
    """Give what copies the healthy node of a profile, for this test to break."""

    def of(profile: str = "t4") -> scene.Scene:
        place = tmp_path / profile
        place.mkdir()
        return scene.copied(healthy(profile), place)

    return of
