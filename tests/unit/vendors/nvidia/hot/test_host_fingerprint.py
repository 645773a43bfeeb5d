# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of a host: the changes that it detects, and how they are reported."""

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


def fingerprint(host: Path) -> str:
    return host_fingerprint.fingerprint(str(host), str(host / "usr/lib/libcuda.so.550.54.15"))


def test_fingerprint_is_readable_and_stable(host: Path) -> None:
    """It has the facts that it was made of, and does not change without them."""
    text = fingerprint(host)
    assert text.startswith("boot=0f1e-boot,driver=550.54.15,gpus=1-")
    assert ",majors=nvidia-uvm:511+nvidia:195,mig=" in text
    assert fingerprint(host) == text
    assert host_fingerprint.differences(text, text) == []


def test_file_of_proc_that_is_larger_than_a_page(host: Path) -> None:
    """The kernel returns a page for each read: mig-minors of a real driver has 100 KB.

    doctor has the whole file, the wrapper reads a part of it: both compare the same.
    """
    whole = Path("/proc/kallsyms").read_bytes()
    assert len(whole) > 1 << 20
    minors = host / "proc/driver/nvidia-caps/mig-minors"
    minors.unlink()
    minors.symlink_to("/proc/kallsyms")
    expected = host_fingerprint.mig_of(whole, ["gpu0/gi7/ci0"])
    assert host_fingerprint.mig_state(str(host)) == expected
    devices = host / "proc/devices"
    padding = "".join(f"{number} other-{number}\n" for number in range(1000))
    devices.write_text(padding + DEVICES)
    assert ",majors=nvidia-uvm:511+nvidia:195," in fingerprint(host)


def upgraded_in_place(host: Path) -> None:
    """Replace libcuda by a file with the same size and time, as package managers may do."""
    library = host / "usr/lib/libcuda.so.550.54.15"
    found = library.stat()
    (host / "new").write_text("FLE")
    os.utime(host / "new", ns=(found.st_atime_ns, found.st_mtime_ns))
    (host / "new").rename(library)


def replaced_root(host: Path) -> None:
    """Replace the driver tree by another one with the same version, as a driver container does."""
    (host / "usr").rename(host / "old")
    (host / "usr/lib").mkdir(parents=True)
    (host / "usr/lib/libcuda.so.550.54.15").write_text("ELF")


def recreated(host: Path) -> None:
    """Replace one GPU instance by another; the kernel module keeps their numbers."""
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
        ("mig", recreated),
        ("mig", lambda host: (host / GPU / "gi7/ci1").mkdir()),
        ("mig", lambda host: shutil.rmtree(host / GPU / "gi7")),
        ("tree", upgraded_in_place),
        ("tree", replaced_root),
        ("tree", lambda host: (host / "usr/lib/libcuda.so.550.54.15").unlink()),
    ],
)
def test_each_part_detects_its_change(
    part: str, change: Callable[[Path], object], host: Path
) -> None:
    """A change of the host changes its part, and one phrase names it."""
    before = fingerprint(host)
    change(host)
    told = host_fingerprint.differences(before, fingerprint(host))
    assert len(told) == 1
    assert told[0].startswith(part + ": was ")


def test_other_devices_are_ignored(host: Path) -> None:
    """A module that has nothing to do with GPUs may be loaded or unloaded."""
    before = fingerprint(host)
    (host / "proc/devices").write_text(DEVICES + "240 other\n")
    assert fingerprint(host) == before


def test_gpu_instance_without_a_device_is_ignored(host: Path) -> None:
    """It is in no spec; a plugin in a container may not see it."""
    before = fingerprint(host)
    (host / GPU / "gi8").mkdir()
    (host / GPU / "gi8/access").write_text("DeviceFileMinor: 75\n")
    assert fingerprint(host) == before


def test_empty_host_has_empty_parts(tmp_path: Path) -> None:
    """Its fingerprint differs from that of a host that has them."""
    empty = host_fingerprint.fingerprint(str(tmp_path), str(tmp_path / "libcuda"))
    assert empty == "boot=,driver=,gpus=,majors=,mig=,tree="
    told = host_fingerprint.differences(
        "boot=x,driver=1.2,gpus=1-0,majors=nvidia:195,mig=1,tree=2", empty
    )
    assert [phrase.partition(":")[0] for phrase in told] == list(host_fingerprint.PARTS)
    assert told[1] == "driver: was 1.2, is none"


def test_version_of_the_module_without_sysfs(host: Path) -> None:
    """Without sysfs it is that of the driver's own file in /proc."""
    os.unlink(host / "sys/module/nvidia/version")
    assert not host_fingerprint.driver_is_loaded(str(host))
    file = host / "proc/driver/nvidia/version"
    file.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\nGCC 12.2.0\n")
    assert host_fingerprint.module_version(str(host)) == "550.54.15"
    assert host_fingerprint.driver_is_loaded(str(host))


def test_wsl_fingerprint(tmp_path: Path) -> None:
    """Under WSL the driver is /dev/dxg, without a kernel module."""
    assert not host_fingerprint.driver_is_loaded(str(tmp_path))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/dxg").write_text("")
    assert host_fingerprint.driver_is_loaded(str(tmp_path) + "/")


def test_commas_are_escaped(host: Path) -> None:
    """No file on the host can add a part to the text."""
    (host / BOOT).write_text("a,driver=9.9\n")
    assert fingerprint(host).count(",") == 5


def test_unrecorded_part_is_not_compared(host: Path) -> None:
    """A spec of an older gpuhook, with fewer parts, is not stale after an upgrade."""
    recorded = ",".join(
        part for part in fingerprint(host).split(",") if not part.startswith("gpus=")
    )
    assert host_fingerprint.differences(recorded, fingerprint(host)) == []
    (host / BOOT).write_text("another\n")
    assert len(host_fingerprint.differences(recorded, fingerprint(host))) == 1
