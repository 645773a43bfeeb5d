# SPDX-License-Identifier: Apache-2.0
"""Driver files and nodes that are recognized by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.spec import injection_traces


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05", "580.95.05"),
        ("/usr/lib64/libnvidia-ml.so.470.256", "470.256"),
        ("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin", "580.95.05"),
        ("/usr/lib/libcuda.so.1", None),
        ("/usr/lib/libnvidia-nvvm70.so.4", None),
        ("/usr/lib/libc.so.2.36", None),
        ("/usr/bin/nvidia-smi", None),
    ],
)
def test_versions_in_file_names(path: str, version: str | None) -> None:
    """A library and a firmware directory name the driver's version, a SONAME does not."""
    assert injection_traces.driver_version(path) == version


@pytest.mark.parametrize(
    ("target", "is_driver"),
    [
        ("/usr/lib/libcuda.so.580.95.05", True),
        ("/usr/bin/nvidia-smi", True),
        ("/proc/driver/nvidia/params", True),
        ("/lib/firmware/nvidia/580.95.05/gsp_ga10x.bin", True),
        ("/dev/nvidia0", False),
        ("/etc/hosts", False),
    ],
)
def test_mounts_of_the_driver(target: str, is_driver: bool) -> None:
    """They differ from other mounts and from nodes."""
    assert injection_traces.is_driver_mount(target) is is_driver


def test_owner_of_a_node(tmp_path: Path) -> None:
    """A node in /dev/dri belongs to its device's driver; others are recognized by name."""
    for minor, driver in ((128, "nvidia"), (129, "i915")):
        device = tmp_path / f"sys/dev/char/226:{minor}/device"
        device.mkdir(parents=True)
        (device / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
    host = str(tmp_path)
    assert injection_traces.is_node("/dev/dri/renderD128", (226, 128), host)
    assert not injection_traces.is_node("/dev/dri/renderD129", (226, 129), host)
    assert not injection_traces.is_node("/dev/dri/renderD130", (226, 130), host)
    assert injection_traces.is_node("/dev/nvidia0", (195, 0), host)
    assert injection_traces.is_node("/dev/nvidia-caps/nvidia-cap1", (234, 1), host)
    assert not injection_traces.is_node("/dev/null", (1, 3), host)
