# SPDX-License-Identifier: Apache-2.0
"""Parsing of MIG capabilities and profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.devices import mig_profile
from gpuhook.vendors.nvidia.devices.mig_profile import Profile
from gpuhook.vendors.nvidia.hot import mig_capabilities


def test_lines_of_mig_minors() -> None:
    """Every line of mig-minors is a capability and its minor; others are ignored."""
    text = "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n\nodd\nodd x\na 1 2\n"
    text += "big 1048576\nbigger 99999999999999999999\n"
    found = {"config": 1, "monitor": 2, "gpu0/gi1/access": 12, "gpu0/gi1/ci0/access": 13}
    assert mig_capabilities.parse_minors(text) == found
    assert mig_capabilities.parse_minors("") == {}


def test_names_and_files_of_capabilities() -> None:
    """A capability has its name in mig-minors, and its file in the tree of /proc."""
    assert mig_capabilities.name(2, 9) == "gpu2/gi9/access"
    assert mig_capabilities.name(2, 9, 0) == "gpu2/gi9/ci0/access"
    top = "/proc/driver/nvidia/capabilities"
    assert mig_capabilities.file("gpu2/gi9/access") == f"{top}/gpu2/mig/gi9/access"
    assert mig_capabilities.file("gpu2/gi9/ci0/access") == f"{top}/gpu2/mig/gi9/ci0/access"


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("DeviceFileMinor: 66\nDeviceFileMode: 292\nDeviceFileModify: 1\n", (66, 0o444)),
        ("DeviceFileMinor:66\n", (66, None)),
        ("DeviceFileMinor: 66\nDeviceFileMode: 99999\n", (66, None)),
        ("DeviceFileMinor: 66\nDeviceFileMode: rw\n", (66, None)),
        ("DeviceFileMinor: none\n", None),
        ("DeviceFileMinor: ²\n", None),
        ("", None),
    ],
)
def test_minor_and_mode_in_the_file_of_a_capability(
    tmp_path: Path, text: str, capability: tuple[int, int | None] | None
) -> None:
    """The mode is a decimal number; mig-minors takes precedence for the minor."""
    found = mig_capabilities.parse_file(text)
    assert (found and (found.minor, found.mode)) == capability
    (tmp_path / "access").write_text(text)
    listed = mig_capabilities.capability(str(tmp_path), "/access", 7)
    assert listed is not None
    assert (listed.minor, listed.mode) == (7, capability and capability[1])


@pytest.mark.parametrize(
    ("text", "profile"),
    [
        ("1g.5gb", Profile(1, 1, 5)),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", Profile(1, 1, 5)),
        ("MIG 1g.5gb+me", Profile(1, 1, 5, "+me")),
        ("NVIDIA A100 MIG 1c.3g.20gb", Profile(1, 3, 20)),
        ("1g.24gb+me.all", Profile(1, 1, 24, "+me.all")),
        ("1g.24gb-me", Profile(1, 1, 24, "-me")),
        ("2g.48gb+gfx", Profile(2, 2, 48, "+gfx")),
        ("1c.2g.10gb+me", Profile(1, 2, 10, "+me")),
    ],
)
def test_profile_is_parsed_and_printed(text: str, profile: Profile) -> None:
    """A profile is read from NVML's name of a device, and printed unchanged."""
    assert mig_profile.parsed(text) == profile
    assert str(profile) == text.rpartition(" ")[2]


@pytest.mark.parametrize("text", [None, "", "NVIDIA A100-SXM4-40GB", "MIG", "1g", "1g.5", "g.5gb"])
def test_other_names_have_no_profile(text: str | None) -> None:
    """Such as that of a GPU."""
    assert mig_profile.parsed(text) is None


@pytest.mark.parametrize(
    ("text", "graphics"), [("+gfx", True), ("+me,gfx", True), ("+me", False), ("-gfx", False)]
)
def test_graphics_attribute_of_a_profile(text: str, graphics: bool) -> None:
    """An instance can draw if its profile has the attribute, and does not exclude it."""
    assert Profile(1, 1, 5, text).has_graphics is graphics


@pytest.mark.parametrize(
    ("mib", "total_mib", "gib"),
    [
        (4864, 40960, 5),
        (4864, 40536, 5),
        (9856, 40536, 10),
        (20096, 40536, 20),
        (40192, 40536, 40),
        (9728, 81920, 10),
        (9728, 81559, 10),
        (19968, 81920, 20),
        (40448, 81559, 40),
        (5952, 24576, 6),
        (12032, 24258, 12),
        (16384, 143771, 18),
        (33280, 143771, 35),
    ],
)
def test_memory_in_a_profile_name(mib: int, total_mib: int, gib: int) -> None:
    """Eighths of the GPU's memory in whole GiB: as NVIDIA names A100, H100, A30."""
    assert mig_profile.memory_gib(mib, total_mib * 1024**2) == gib
