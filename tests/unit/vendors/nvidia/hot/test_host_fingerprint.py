# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of a host: what changes it, and how a change is reported."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.hot import host_fingerprint

GPU = "proc/driver/nvidia/capabilities/gpu0/mig"
GPUS = "proc/driver/nvidia/gpus"
BOOT = "proc/sys/kernel/random/boot_id"
DEVICES = "Character devices:\n  1 mem\n195 nvidia\n511 nvidia-uvm\n\nBlock devices:\n  8 sd\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """Return the root of a host with a loaded driver."""
    for path, text in (
        (BOOT, "0f1e-boot\n"),
        ("sys/module/nvidia/version", "550.54.15\n"),
        ("proc/devices", DEVICES),
        ("proc/driver/nvidia-caps/mig-minors", "config 1\n"),
        ("proc/driver/nvidia/capabilities/mig/config", "DeviceFileMinor: 1\n"),
        ("proc/driver/nvidia/gpus/0000:17:00.0/information", "Device Minor: 0\n"),
        (f"{GPU}/gi7/access", "DeviceFileMinor: 66\n"),
        (f"{GPU}/gi7/ci0/access", "DeviceFileMinor: 67\n"),
        ("usr/lib/libcuda.so.550.54.15", "ELF"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def taken(host: Path) -> str:
    return host_fingerprint.fingerprint(str(host), str(host / "usr/lib/libcuda.so.550.54.15"))


def test_it_is_readable(host: Path) -> None:
    """A fingerprint says what it was made of, and is the same the next time."""
    text = taken(host)
    assert text.startswith("boot=0f1e-boot,driver=550.54.15,gpus=1-")
    assert ",majors=nvidia-uvm:511+nvidia:195,mig=" in text
    assert taken(host) == text
    assert host_fingerprint.differences(text, text) == []


def upgraded_in_place(host: Path) -> None:
    """Replace libcuda by a file of the same size and time, as package managers may."""
    library = host / "usr/lib/libcuda.so.550.54.15"
    found = library.stat()
    (host / "new").write_text("FLE")
    os.utime(host / "new", ns=(found.st_atime_ns, found.st_mtime_ns))
    (host / "new").rename(library)


def replaced_root(host: Path) -> None:
    """Put another driver tree of the same version in its place, as a driver container does."""
    (host / "usr").rename(host / "old")
    (host / "usr/lib").mkdir(parents=True)
    (host / "usr/lib/libcuda.so.550.54.15").write_text("ELF")


def made_anew(host: Path) -> None:
    """Put one GPU instance in another's place; the driver numbers both all the time."""
    (host / GPU / "gi7").rename(host / GPU / "gi8")


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("boot", lambda host: (host / BOOT).write_text("another\n")),
        ("boot", lambda host: (host / BOOT).unlink()),
        ("driver", lambda host: (host / "sys/module/nvidia/version").write_text("560.1\n")),
        ("gpus", lambda host: (host / GPUS / "0000:65:00.0").mkdir()),
        ("gpus", lambda host: shutil.rmtree(host / GPUS / "0000:17:00.0")),
        ("gpus", lambda host: (host / GPUS / "0000:17:00.0").rename(host / GPUS / "0000:18:00.0")),
        ("majors", lambda host: (host / "proc/devices").write_text(DEVICES.replace("511", "510"))),
        ("majors", lambda host: (host / "proc/devices").write_text("195 nvidia-frontend\n")),
        ("mig", lambda host: (host / "proc/driver/nvidia-caps/mig-minors").write_text("gpu0 2\n")),
        ("mig", made_anew),
        ("mig", lambda host: (host / GPU / "gi7/ci1").mkdir()),
        ("mig", lambda host: shutil.rmtree(host / GPU / "gi7")),
        ("tree", upgraded_in_place),
        ("tree", replaced_root),
        ("tree", lambda host: (host / "usr/lib/libcuda.so.550.54.15").unlink()),
    ],
)
def test_each_part(part: str, change: Callable[[Path], object], host: Path) -> None:
    """A change of the host changes its part, and one phrase names it."""
    before = taken(host)
    change(host)
    told = host_fingerprint.differences(before, taken(host))
    assert len(told) == 1
    assert told[0].startswith(part + ": was ")


def test_other_devices_do_not_count(host: Path) -> None:
    """A module that has nothing to do with GPUs may come and go."""
    before = taken(host)
    (host / "proc/devices").write_text(DEVICES + "240 other\n")
    assert taken(host) == before


def test_a_gpu_instance_without_a_device_does_not_count(host: Path) -> None:
    """It is in no spec; a plugin in a container may not see it, and describes the same node."""
    before = taken(host)
    (host / GPU / "gi8").mkdir()
    (host / GPU / "gi8/access").write_text("DeviceFileMinor: 75\n")
    assert taken(host) == before


def test_an_empty_host(tmp_path: Path) -> None:
    """On an empty host, every part is empty, and differs from a host that has it."""
    empty = host_fingerprint.fingerprint(str(tmp_path), str(tmp_path / "libcuda"))
    assert empty == "boot=,driver=,gpus=,majors=,mig=,tree="
    told = host_fingerprint.differences(
        "boot=x,driver=1.2,gpus=1-0,majors=nvidia:195,mig=1,tree=2", empty
    )
    assert [phrase.partition(":")[0] for phrase in told] == list(host_fingerprint.PARTS)
    assert told[1] == "driver: was 1.2, is none"


def test_version_of_the_module(host: Path) -> None:
    """Without sysfs the version is that of the driver's own file in /proc."""
    os.unlink(host / "sys/module/nvidia/version")
    assert not host_fingerprint.driver_is_loaded(str(host))
    file = host / "proc/driver/nvidia/version"
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\nGCC 12.2.0\n")
    assert host_fingerprint.module_version(str(host)) == "550.54.15"
    assert host_fingerprint.driver_is_loaded(str(host))


def test_wsl(tmp_path: Path) -> None:
    """Under WSL the driver is /dev/dxg, without a kernel module."""
    assert not host_fingerprint.driver_is_loaded(str(tmp_path))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").write_text("")
    assert host_fingerprint.driver_is_loaded(str(tmp_path) + "/")


def test_commas_stay_inside(host: Path) -> None:
    """No file of the host can add a part to the text."""
    (host / BOOT).write_text("a,driver=9.9\n")
    assert taken(host).count(",") == 5


def test_a_part_that_was_not_recorded_says_nothing(host: Path) -> None:
    """A spec by a gpuhook that knew fewer parts is not stale by an upgrade of gpuhook."""
    recorded = ",".join(part for part in taken(host).split(",") if not part.startswith("gpus="))
    assert host_fingerprint.differences(recorded, taken(host)) == []
    (host / BOOT).write_text("another\n")
    assert len(host_fingerprint.differences(recorded, taken(host))) == 1
