# SPDX-License-Identifier: Apache-2.0
"""Whether a node can enforce limits, and the reason if it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.kernel import cgroup
from gpuhook.vendors.nvidia.driver import driver_support


def library(directory: Path, version: str) -> str:
    """Return the path of an NVML library with a version: a link, as drivers install it."""
    target = directory / f"libnvidia-ml.so.{version}"
    target.touch()
    link = directory / "libnvidia-ml.so.1"
    link.symlink_to(target.name)
    return str(link)


@pytest.mark.parametrize(
    ("hierarchy", "version", "has_call", "words"),
    [
        ("v2", "580.65.06", False, "driver 580 is older than r615"),
        ("v2", "615.12", False, "driver 615 has no memory limits"),
        ("v1", "615.12", True, "cgroup v1"),
        (None, "615.12", True, "no cgroups are mounted"),
    ],
)
def test_reason_without_support(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hierarchy: str | None,
    version: str,
    has_call: bool,  # a parameter of the test
    words: str,
) -> None:
    monkeypatch.setattr(cgroup, "hierarchy", lambda: hierarchy)
    monkeypatch.setattr(driver_support, "supported", lambda path: has_call)
    found = driver_support.driver_support(library(tmp_path, version))
    assert not found.holds
    assert words in found.reason
    assert found.remedy
    assert found.backend == ""


@pytest.mark.parametrize(
    ("files", "backend", "holds"),
    [
        ({"cgroup.controllers": "cpu memory"}, "misc", True),
        (
            {
                "cgroup.controllers": "cpu dmem",
                "dmem.capacity": "nvidia/0000:01:00.0 1",
                "cgroup.subtree_control": "cpu dmem",
            },
            "dmem",
            True,
        ),
        (
            {
                "cgroup.controllers": "cpu dmem",
                "dmem.capacity": "nvidia/0000:01:00.0 1",
                "cgroup.subtree_control": "cpu",
            },
            "dmem",
            False,
        ),
        # In a container the topmost visible cgroup is another one, which enables no controller.
        ({"cgroup.controllers": "cpu dmem", "cgroup.subtree_control": ""}, "dmem", True),
    ],
)
def test_backend_of_the_node(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    backend: str,
    holds: bool,  # a parameter of the test
) -> None:
    """The kernel's controller must be passed on to cgroups below, else no limit is accepted."""
    monkeypatch.setattr(cgroup, "hierarchy", lambda: cgroup.V2)
    monkeypatch.setattr(driver_support, "supported", lambda path: True)
    top = tmp_path / "cgroup"
    top.mkdir()
    for name, text in files.items():
        (top / name).write_text(text)
    found = driver_support.driver_support(library(tmp_path, "615.12"), str(top))
    assert (found.backend, found.holds) == (backend, holds)
    assert bool(found.reason) is not holds


def test_without_a_driver() -> None:
    assert "no NVIDIA driver" in driver_support.driver_support(None).reason
