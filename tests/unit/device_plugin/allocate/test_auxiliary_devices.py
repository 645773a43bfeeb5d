# SPDX-License-Identifier: Apache-2.0
"""Auxiliary devices (GDRCopy, GPUDirect Storage, RDMA, IMEX): added if enabled and present."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.device_plugin.allocate import auxiliary_devices
from gpuhook.device_plugin.allocate.container_allocation import AllocatedMount, DeviceSpec
from gpuhook.device_plugin.config.configuration import Configuration, Flags, Imex
from gpuhook.errors import GpuhookError
from gpuhook.vendors.plugin_place import Places

NODES = (
    "gdrdrv", "nvidia-fs0", "nvidia-fs2", "nvidia-fs10", "nvidia-fs-x", "infiniband/uverbs0",
    "infiniband/uverbs1", "infiniband/rdma_cm", "infiniband/umad0",
    "nvidia-caps-imex-channels/channel0",
)  # fmt: skip
ALL = Flags(gdrcopy_enabled=True, gds_enabled=True, mofed_enabled=True)


def places_with(tmp_path: Path, *nodes: str) -> Places:
    """Create a /dev with these files and a driver root, with other paths on the host."""
    for name in nodes:
        path = tmp_path / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return Places(f"{tmp_path}/driver", str(tmp_path), "/run/nvidia/driver", "/host")


def device_specs(*names: str) -> tuple[DeviceSpec, ...]:
    return tuple(DeviceSpec(f"/dev/{name}", f"/host/dev/{name}") for name in names)


def test_enabled_devices_have_nodes_variables_and_mounts(tmp_path: Path) -> None:
    places = places_with(tmp_path, *NODES)
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
    assert found["gdrcopy"].devices == {"all": device_specs("gdrdrv")}
    assert found["gds"].devices == {"all": device_specs("nvidia-fs0", "nvidia-fs2", "nvidia-fs10")}
    infiniband = [f"infiniband/{name}" for name in ("uverbs0", "uverbs1", "rdma_cm")]
    assert found["mofed"].devices == {"all": device_specs(*infiniband)}
    assert found["imex-channel"].devices == {
        "0": device_specs("nvidia-caps-imex-channels/channel0")
    }
    assert found["gds"].mounts == (
        AllocatedMount("/run/udev", "/run/nvidia/driver/run/udev"),
        AllocatedMount("/etc/cufile.json", "/run/nvidia/driver/etc/cufile.json"),
    )
    assert not any(extra.mounts for name, extra in found.items() if name != "gds")


@pytest.mark.parametrize("configuration", [Configuration(ALL), Configuration(imex=Imex((0,)))])
def test_missing_device_is_omitted(configuration: Configuration, tmp_path: Path) -> None:
    assert auxiliary_devices.find(configuration, places_with(tmp_path, "null")) == ()


def test_disabled_device_is_omitted(tmp_path: Path) -> None:
    assert auxiliary_devices.find(Configuration(), places_with(tmp_path, *NODES)) == ()


def test_missing_required_channel_is_a_fault(tmp_path: Path) -> None:
    """The fault has the path on the host."""
    required = Configuration(imex=Imex((0,), required=True))
    with pytest.raises(GpuhookError) as caught:
        auxiliary_devices.find(required, places_with(tmp_path, "null"))
    assert caught.value.code == "GH1856"
    assert "/host/dev/nvidia-caps-imex-channels/channel0" in caught.value.message
    there = places_with(tmp_path, "nvidia-caps-imex-channels/channel0")
    assert len(auxiliary_devices.find(required, there)) == 1
    assert auxiliary_devices.find(replace(required, imex=Imex()), there) == ()
