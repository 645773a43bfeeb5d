# SPDX-License-Identifier: Apache-2.0
"""Directories with a driver: those that are searched, and those that are not trusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.driver import driver_locations

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="files are given to another user"),
    pytest.mark.skipif(bool(driver_locations.roots_with_driver()), reason="this node has a driver"),
]
NOBODY = 65534


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a searched directory with a driver."""
    root = tmp_path / "home/kubernetes/bin/nvidia"
    (root / "lib64").mkdir(parents=True)
    (root / "lib64/libnvidia-ml.so.1").touch()
    monkeypatch.setattr(driver_locations, "OTHER_ROOTS", (str(root),))
    return root


def test_directory_of_root_is_searched(root: Path) -> None:
    assert driver_locations.roots_with_driver() == (str(root),)


@pytest.mark.parametrize("where", [".", "..", "../.."])
def test_directory_of_another_user_is_not_searched(root: Path, where: str) -> None:
    """Programs of root load the library: another user must not choose it."""
    os.chown(root / where, NOBODY, NOBODY)
    assert driver_locations.roots_with_driver() == ()


@pytest.mark.parametrize("mode", [0o757, 0o777])
def test_directory_that_others_can_write_is_not_searched(root: Path, mode: int) -> None:
    root.parent.chmod(mode)
    assert driver_locations.roots_with_driver() == ()
    root.parent.chmod(mode | 0o1000)  # other users cannot replace a directory of root in it
    assert driver_locations.roots_with_driver() == (str(root),)


def test_link_to_a_directory_of_another_user_is_not_followed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link").symlink_to(root)
    monkeypatch.setattr(driver_locations, "OTHER_ROOTS", (str(tmp_path / "link"),))
    assert driver_locations.roots_with_driver() == (str(tmp_path / "link"),)
    os.chown(root.parent, NOBODY, NOBODY)
    assert driver_locations.roots_with_driver() == ()
