# SPDX-License-Identifier: Apache-2.0
"""The labels of AMD's node labeller: the values that it writes, for the same hardware."""

from __future__ import annotations

import ctypes
import fcntl
import re
from dataclasses import replace
from pathlib import Path
from struct import pack_into, unpack

import pytest

from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdDriver, AmdGpu, AmdNode
from gpuhook.vendors.amd.labels import asic_family
from gpuhook.vendors.amd.labels.amd_labels import KINDS, OWNED, labels, usable
from gpuhook.vendors.amd.labels.firmware_versions import firmware_versions

GIB = 1 << 30
MI300X_BYTES = 206141652992
NAME = "AMD Instinct MI300X OAM"
_NOT_DRIVER = KINDS[:6]


def gpu(index: int, memory: int, units: int, parts: int = 1, **facts: object) -> AmdGpu:
    """Return a GPU with `parts` partitions of equal size and four SIMDs for each compute unit."""
    address = f"0000:{index + 5:02x}:00.0"
    devices = tuple(
        AmdDevice(
            index=index * parts + part,
            id=f"amdgpu_xcp_{index * 8 + part}" if part else address,
            partition=part,
            render_minor=128 + index * 8 + part,
            memory_bytes=memory // parts,
            cu_count=units // parts,
            simd_count=units * 4 // parts,
        )
        for part in range(parts)
    )
    return replace(AmdGpu(index, address, devices=devices), **facts)  # type: ignore[arg-type]


def mi300x(parts: int = 1) -> AmdNode:
    modes = {"compute_mode": "SPX" if parts == 1 else "CPX", "memory_mode": "NPS1"}
    facts = {"name": NAME, "device_id": "74a1", "family": "AI", "compute_modes": ("SPX", "CPX")}
    gpus = (gpu(index, MI300X_BYTES, 304, parts, **facts, **modes) for index in range(8))
    return AmdNode(AmdDriver("6.12.12", "B2F0"), tuple(gpus))


def golden(counts: dict[str, tuple[str, int]]) -> dict[str, str]:
    """Return the labels of kinds that have one value each: (value, number of devices)."""
    expected = {}
    for kind, (value, count) in counts.items():
        expected[f"amd.com/gpu.{kind}"] = expected[f"beta.amd.com/gpu.{kind}"] = value
        expected[f"beta.amd.com/gpu.{kind}.{value}"] = str(count)
    return expected


def test_eight_mi300x() -> None:
    assert labels(mi300x(), _NOT_DRIVER).values == golden(
        {
            "cu-count": ("304", 8),
            "simd-count": ("1216", 8),
            "vram": ("192G", 8),
            "device-id": ("74a1", 8),
            "family": ("AI", 8),
            "product-name": ("AMD_Instinct_MI300X_OAM", 8),
        }
    )


@pytest.mark.parametrize("count", [64, 63])
def test_partitions_count_for_memory_and_units_only(count: int) -> None:
    node = mi300x(8)
    if count == 63:
        short = replace(node.gpus[7], devices=node.gpus[7].devices[:7])
        node = replace(node, gpus=(*node.gpus[:7], short))
    assert labels(node, _NOT_DRIVER).values == golden(
        {
            "cu-count": ("38", count),
            "simd-count": ("152", count),
            "vram": ("24G", count),
            "device-id": ("74a1", 8),
            "family": ("AI", 8),
            "product-name": ("AMD_Instinct_MI300X_OAM", 8),
        }
    )


def test_unequal_gpus_have_counters_under_both_prefixes() -> None:
    both = (gpu(0, 32 * GIB - (16 << 20), 60), gpu(1, 64 * GIB - (16 << 20), 104))
    found = labels(AmdNode(AmdDriver(), both), ("vram",)).values
    counters = {"gpu.vram.32G": "1", "gpu.vram.64G": "1"}
    assert found == {
        f"{of}amd.com/{name}": n for name, n in counters.items() for of in ("", "beta.")
    }


def test_labels_of_the_whole_node() -> None:
    """They have one prefix, and the driver's are empty for the driver of the kernel itself."""
    kinds = [kind for kind in KINDS if "driver" in kind or "partition" in kind]
    assert labels(mi300x(8), kinds).values == {
        "amd.com/gpu.driver-version": "6.12.12",
        "amd.com/gpu.driver-src-version": "B2F0",
        "amd.com/gpu.compute-memory-partition": "cpx_nps1",
        "amd.com/gpu.compute-partitioning-supported": "true",
        "amd.com/gpu.memory-partitioning-supported": "false",
    }
    radeon = AmdNode(None, (gpu(0, 24 * GIB, 96),))
    assert labels(radeon, kinds).values == {
        "amd.com/gpu.driver-version": "",
        "amd.com/gpu.driver-src-version": "",
        "amd.com/gpu.compute-partitioning-supported": "false",
        "amd.com/gpu.memory-partitioning-supported": "false",
    }


def test_different_modes_have_no_common_label() -> None:
    node = mi300x()
    mixed = replace(node, gpus=(*node.gpus[:7], mi300x(8).gpus[7]))
    assert labels(mixed, ("compute-memory-partition",)).values == {}


@pytest.mark.parametrize(
    ("name", "value", "key"),
    [
        ("AMD Instinct MI250X / MI250", "AMD_Instinct_MI250X___MI250", None),
        ("AMD INSTINCT MI250 (MCM) OAM AC MBA", "AMD_INSTINCT_MI250_MCM_OAM_AC_MBA", None),
        ("Radeon™ RX 7900 XTX", "Radeon_RX_7900_XTX", None),
        ("M" * 80, "M" * 63, "M" * 46),
        ("M" * 45 + " Pro", "M" * 45 + "_Pro", "M" * 45),
        ("-GPU.", "GPU", None),
    ],
)
def test_name_that_kubernetes_refuses_is_changed(name: str, value: str, key: str | None) -> None:
    found = labels(AmdNode(None, (gpu(0, GIB, 1, name=name),)), ("product-name",))
    assert found.values == {
        "amd.com/gpu.product-name": value,
        "beta.amd.com/gpu.product-name": value,
        f"beta.amd.com/gpu.product-name.{key or value}": "1",
    }
    assert max(len(name.partition("/")[2]) for name in found.values) <= 63


def test_value_without_a_valid_character_costs_no_other_label() -> None:
    found = labels(AmdNode(None, (gpu(0, GIB, 1, name="(™)"),)), ("product-name", "vram"))
    assert found.values == golden({"vram": ("1G", 1)})
    assert found.warnings == (
        "the label amd.com/gpu.product-name is omitted: '(\\u2122)' has no valid character",
    )


def test_facts_that_are_unknown_have_no_label() -> None:
    bare = AmdGpu(0, "0000:05:00.0", devices=(AmdDevice(0, "0000:05:00.0", 0, 128),))
    assert labels(AmdNode(None, (bare,)), _NOT_DRIVER).values == {}


@pytest.mark.parametrize("gpus", [(), (AmdGpu(0, "0000:05:00.0", device_id="74a1"),)])
def test_node_without_a_usable_gpu_has_no_labels(gpus: tuple[AmdGpu, ...]) -> None:
    """No pod should be scheduled for a lost GPU."""
    node = usable(AmdNode(AmdDriver(), gpus), (), "")
    assert labels(node, KINDS).values == {}


def test_firmware_is_counted_under_the_beta_prefix(tmp_path: Path) -> None:
    for address, sdma in (("0000:05:00.0", 24), ("0000:06:00.0", 25)):
        directory = tmp_path / "sys/module/amdgpu/drivers/pci:amdgpu" / address / "fw_version"
        directory.mkdir(parents=True)
        (directory / "mec_fw_version").write_text("0x000000b6\n")
        (directory / "sdma_fw_version").write_text(f"{sdma:#010x}\n")
        (directory / "vce_fw_version").write_text("0x00000000\n")
        (directory / "smc_fw_version").write_text("nothing\n")
        (directory / "rlc_fw_version").write_text("f" * 9 + "\n")
    found = [firmware_versions(str(tmp_path), f"0000:0{bus}:00.0") for bus in (5, 6, 7)]
    assert labels(mi300x(), ("firmware",), found).values == {
        "beta.amd.com/gpu.firmware.MEC.fw.182": "2",
        "beta.amd.com/gpu.firmware.SDMA0.fw.24": "1",
        "beta.amd.com/gpu.firmware.SDMA0.fw.25": "1",
    }


def test_owned_names_are_those_of_known_kinds() -> None:
    found = labels(mi300x(8), KINDS, [{"MEC": 1}])
    assert found.names == OWNED
    assert all(re.fullmatch(OWNED, name) for name in found.values)
    for name in ("amd.com/gpu", "amd.com/gpu.mode", "amd.com/gpu.vramx", "dcm.amd.com/gpu.vram",
                 "beta.amd.com/gpu.owner", "amd.com/compute-memory-partition"):  # fmt: skip
        assert not re.fullmatch(OWNED, name), name


def test_family_of_an_uncertain_gfx_version_comes_from_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """drm_amdgpu_info has the answer's address and size, and the query DEV_INFO."""
    known, unknown = gpu(0, GIB, 1, family="AI"), gpu(1, GIB, 1)
    node, root = AmdNode(None, (known, unknown)), str(tmp_path)

    def families() -> list[str | None]:
        return [one.family for one in asic_family.with_families(node, root).gpus]

    assert families() == ["AI", None]  # no render node
    (tmp_path / "dev/dri").mkdir(parents=True)
    (tmp_path / "dev/dri/renderD136").touch()
    assert families() == ["AI", None]  # not a DRM node

    def ioctl(_node: int, request: int, argument: bytes) -> None:
        address, size, query = unpack("=QII16x", argument)
        assert (request, len(argument), query) == (0x40206445, 32, 0x16)
        answer = (ctypes.c_char * size).from_address(address)
        pack_into("=IIIII", answer, 0, 0x164E, 1, 2, 3, 149)

    monkeypatch.setattr(fcntl, "ioctl", ioctl)
    assert families() == ["AI", "GC_10_3_6"]
