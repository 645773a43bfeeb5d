# SPDX-License-Identifier: Apache-2.0
"""GPUDirect, RDMA and IMEX: added if they are enabled and present."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate import auxiliary_devices
from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, DeviceSpec
from gpuhook.device_plugin.allocate.host_paths import Places
from gpuhook.device_plugin.config.configuration import Configuration, Flags, Imex
from gpuhook.errors import GpuhookError

NODES = (
    "gdrdrv", "nvidia-fs0", "nvidia-fs2", "nvidia-fs10", "nvidia-fs-x", "infiniband/uverbs0",
    "infiniband/uverbs1", "infiniband/rdma_cm", "infiniband/umad0",
    "nvidia-caps-imex-channels/channel0",
)  # fmt: skip
ALL = Flags(gdrcopy_enabled=True, gds_enabled=True, mofed_enabled=True)


def made(tmp_path: Path, *nodes: str) -> Places:
    """Create a /dev with these nodes, and another driver root; both have other paths on the host.

    What a node is does not matter here.
    """
    for name in nodes:
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Places(f"{tmp_path}/driver", str(tmp_path), "/run/nvidia/driver", "/host")


def specs(*names: str) -> tuple[DeviceSpec, ...]:
    return tuple(DeviceSpec(f"/dev/{name}", f"/host/dev/{name}") for name in names)


def test_all_that_is_there(tmp_path: Path) -> None:
    """Each class has its nodes in order, the variable, and the files of the host."""
    places = made(tmp_path, *NODES)
    for name in ("etc/cufile.json", "run/udev/x"):
        path = tmp_path / "driver" / name
        path.parent.mkdir(parents=True)
        path.touch()
    configuration = Configuration(ALL, imex=Imex((0,)))
    found = {extra.device_class: extra for extra in auxiliary_devices.find(configuration, places)}
    assert {name: extra.env for name, extra in found.items()} == {
        "gdrcopy": "NVIDIA_GDRCOPY",
        "gds": "NVIDIA_GDS",
        "mofed": "NVIDIA_MOFED",
        "imex-channel": "",
    }
    assert found["gdrcopy"].devices == {"all": specs("gdrdrv")}
    assert found["gds"].devices == {"all": specs("nvidia-fs0", "nvidia-fs2", "nvidia-fs10")}
    infiniband = [f"infiniband/{name}" for name in ("uverbs0", "uverbs1", "rdma_cm")]
    assert found["mofed"].devices == {"all": specs(*infiniband)}
    assert found["imex-channel"].devices == {"0": specs("nvidia-caps-imex-channels/channel0")}
    assert found["gds"].mounts == (
        AllocatedMount("/run/udev", "/run/nvidia/driver/run/udev"),
        AllocatedMount("/etc/cufile.json", "/run/nvidia/driver/etc/cufile.json"),
    )
    assert not any(extra.mounts for name, extra in found.items() if name != "gds")


@pytest.mark.parametrize("configuration", [Configuration(ALL), Configuration(imex=Imex((0,)))])
def test_what_is_not_there_is_not_promised(configuration: Configuration, tmp_path: Path) -> None:
    """A missing device is the same as a disabled one."""
    assert auxiliary_devices.find(configuration, made(tmp_path, "null")) == ()


def test_what_is_not_enabled_is_not_given(tmp_path: Path) -> None:
    """Nodes without a key are not added."""
    assert auxiliary_devices.find(Configuration(), made(tmp_path, *NODES)) == ()


def test_a_required_channel(tmp_path: Path) -> None:
    """A missing required channel is a fault with the path on the host."""
    required = Configuration(imex=Imex((0,), required=True))
    with pytest.raises(GpuhookError) as caught:
        auxiliary_devices.find(required, made(tmp_path, "null"))
    assert caught.value.code == "GH1856"
    assert "/host/dev/nvidia-caps-imex-channels/channel0" in caught.value.message
    there = made(tmp_path, "nvidia-caps-imex-channels/channel0")
    assert len(auxiliary_devices.find(required, there)) == 1
    assert auxiliary_devices.find(replace(required, imex=Imex()), there) == ()
