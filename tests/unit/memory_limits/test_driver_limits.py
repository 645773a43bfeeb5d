# SPDX-License-Identifier: Apache-2.0
"""Whether the driver enforces memory limits: it needs the call, and cgroups of version 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.kernel import cgroup
from gpuhook.vendors.nvidia.driver import driver_support

V2 = b"30 23 0:26 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n"
V1 = b"31 23 0:27 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n"


@pytest.mark.parametrize(
    ("mounts", "version"), [(V2, "v2"), (V1, "v1"), (V1 + V2, "v2"), (b"", None)]
)
def test_version_of_the_hierarchy(mounts: bytes, version: str | None) -> None:
    """It is that of the mount at /sys/fs/cgroup, or of the device controller."""
    assert cgroup.hierarchy(mounts) == version


@pytest.mark.parametrize(
    ("version", "has_call", "held"),
    [("v2", True, True), ("v2", False, False), ("v1", True, False), (None, True, False)],
)
def test_call_and_cgroup_v2_are_both_needed(
    monkeypatch: pytest.MonkeyPatch, version: str | None, has_call: bool, held: bool
) -> None:
    """A driver that is too old enforces no limit, nor does one on a node with cgroup v1."""
    monkeypatch.setattr(cgroup, "hierarchy", lambda: version)
    monkeypatch.setattr(driver_support, "supported", lambda library: has_call)
    assert driver_support.driver_support("/lib/libnvidia-ml.so.1").holds is held


def test_without_a_driver_no_limit_is_enforced() -> None:
    assert driver_support.driver_support(None).holds is False


def test_missing_library_is_not_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A driver that is being replaced enforces no limit."""
    monkeypatch.setattr(cgroup, "hierarchy", lambda: cgroup.V2)
    assert driver_support.driver_support(str(tmp_path / "libnvidia-ml.so.1")).holds is False
