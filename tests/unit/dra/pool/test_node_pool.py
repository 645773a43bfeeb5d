# SPDX-License-Identifier: Apache-2.0
"""The devices of a pool: names, attributes, capacities and counters of both vendors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.dra.pool.node_pool import node_pool
from gpuhook.dra.pool.pool_device import Capacity, Pool, Version
from gpuhook.dra.pool.sharing_form import sharing_forms
from gpuhook.errors import fault
from gpuhook.vendors.catalogue import vendor_of
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.plugin.dra_device import (
    known_attributes,
    label,
    pci_attributes,
    semantic_version,
)
from gpuhook.vendors.plugin.vendor_part import VendorPart
from tests.unit.dra.pools import NODE, profile_pool, shared_pool
from tests.unit.offering import T4, changed, configured, part_of

STANDARD = "resource.kubernetes.io"


def pool_of_part(part: VendorPart, root: str | None = None, **options: Any) -> Pool:
    forms = sharing_forms(configured(**options), part.inventory)
    return node_pool(part, forms, NODE, root)


def names(pool: Pool) -> list[str]:
    return [one.name for one in pool.devices]


def test_a_gpu_has_the_attributes_of_nvidias_driver() -> None:
    pool = profile_pool("h100x8")
    assert (pool.driver, pool.name) == ("gpu.nvidia.com", NODE)
    assert pool.devices[0].attributes == {
        "type": "gpu",
        "resource": "nvidia.com/gpu",  # gpuhook's, for the selectors of classes
        "uuid": "GPU-5c9a1f7e-2f0b-4d35-a1c8-0b6d9e4f7a21",
        "productName": "NVIDIA H100 80GB HBM3",
        "brand": "Nvidia",
        "architecture": "Hopper",
        "cudaComputeCapability": Version("9.0.0"),
        "driverVersion": Version("580.95.5"),
        "cudaDriverVersion": Version("13.0.0"),
        "index": 0,
        "minor": 0,
        f"{STANDARD}/pciBusID": "0000:1b:00.0",
        f"{STANDARD}/numaNode": 0,
    }
    assert set(pool.devices[0].capacity) == {"memory"}


def test_devices_are_in_the_order_of_pci_addresses_with_the_names_of_minors() -> None:
    pool = profile_pool("h100x8")
    assert names(pool) == [f"gpu-{minor}" for minor in (0, 1, 3, 2, 4, 5, 7, 6)]
    addresses = [str(one.attributes[f"{STANDARD}/pciBusID"]) for one in pool.devices]
    assert addresses == sorted(addresses)


def test_instances_of_gpus_in_mig_mode() -> None:
    pool = profile_pool("a100-mig")
    assert names(pool) == [
        *(f"gpu-0-mig-1g-5gb-19-{number}" for number in range(7)),
        "gpu-2-mig-3g-20gb-9-4",
        "gpu-2-mig-1c-2g-10gb-14-0-0",
        "gpu-2-mig-1c-2g-10gb-14-0-1",
        "gpu-2-mig-1g-5gb-me-20-2",
        "gpu-1",
    ]
    large = pool.devices[7]
    assert large.attributes["type"] == "mig"
    assert large.attributes["profile"] == "3g.20gb"
    assert large.attributes["parentUUID"] == "GPU-d94e07b3-61fa-4c28-8e5d-7a13b0c96f82"
    assert large.capacity["multiprocessors"] == Capacity(42)
    assert large.counters == {
        "gpu-2-counter-set": {
            "multiprocessors": 42,
            "copy-engines": 3,
            "decoders": 2,
            **{f"memory-slice-{number}": 1 for number in range(4, 8)},
        }
    }
    # Compute instances of one GPU instance share its memory and its engines.
    assert pool.devices[8].counters == {"gpu-2-counter-set": {"multiprocessors": 14}}
    assert set(pool.counter_sets) == {"gpu-0-counter-set", "gpu-2-counter-set"}


def test_all_devices_fit_into_the_counters_together() -> None:
    pool = profile_pool("a100-mig")
    used: dict[tuple[str, str], int] = {}
    for one in pool.devices:
        for name, counters in one.counters.items():
            for counter, number in counters.items():
                used[name, counter] = used.get((name, counter), 0) + number
    sets = {
        (name, c): number for name, own in pool.counter_sets.items() for c, number in own.items()
    }
    assert used == sets


def test_instances_without_a_known_place_have_names_of_their_ids() -> None:
    a100 = dump_file.load("a100-mig")
    gpu = a100.gpus[0]
    instances = tuple(
        replace(one, profile_id=None, memory_start=None, memory_slices=None)
        for one in gpu.instances
    )
    pool = pool_of_part(part_of(changed(a100, 0, instances=instances)))
    assert names(pool)[:2] == ["gpu-0-mig-1g-5gb-gi7-ci0", "gpu-0-mig-1g-5gb-gi8-ci0"]
    assert pool.devices[0].counters == {
        "gpu-0-counter-set": {"multiprocessors": 14, "copy-engines": 1}
    }


def test_a_shared_device_has_its_chip_as_attributes() -> None:
    [gpu] = shared_pool("t4").devices
    assert gpu.is_shared
    assert set(gpu.capacity) == {"memory", "slots"}
    pool = profile_pool("mi300x-cpx", vendor="amd")
    assert pool.devices[0].capacity["computeUnits"] == Capacity(38)


def test_amds_devices_have_the_names_of_amds_driver() -> None:
    pool = profile_pool("mixed", vendor="amd")
    assert pool.driver == "gpu.amd.com"
    assert names(pool) == ["gpu-3-130", "gpu-4-131"]
    first = pool.devices[0].attributes
    assert first["type"] == "amdgpu"
    assert first["deviceID"] == "0x740f"
    assert first["driverVersion"] == Version("6.16.13")
    parts = profile_pool("mi300x-cpx", vendor="amd").devices
    assert parts[1].attributes["type"] == "amdgpu-partition"
    assert parts[1].attributes["partitionProfile"] == "cpx_nps4"
    assert "uuid" not in parts[1].attributes
    assert parts[0].attributes["parentUUID"] == parts[1].attributes["parentUUID"]


def test_excluded_devices_are_not_in_the_pool() -> None:
    assert names(pool_of_part(part_of(dump_file.load("h100x8")), exclude=("0", "2"))) == [
        f"gpu-{minor}" for minor in (1, 2, 4, 5, 7, 6)
    ]


def test_a_lost_gpu_has_a_taint() -> None:
    lost = [one for one in profile_pool("lost-gpu").devices if one.taints]
    assert [one.taints[0].key for one in lost] == ["gpu.nvidia.com/unusable"]


@pytest.mark.parametrize(
    ("part", "exclude", "reason"),
    [
        ({}, ("all-of-t4",), "the configuration excludes all devices of this node"),
        ({"inventory": replace(T4, gpus=())}, (), "the driver reports no GPU"),
        ({"inventory": replace(T4, gpus=()), "has_hardware": False}, (), "this node has no GPU"),
        ({"inventory": replace(T4, gpus=()), "trouble": "not loaded"}, (), "not loaded"),
        (
            {"inventory": replace(T4, gpus=()), "error": fault("GH2611", version="1.31")},
            (),
            "the API server (Kubernetes 1.31) does not serve ResourceSlices, resource.k8s.io",
        ),
    ],
)
def test_why_a_pool_is_empty(part: dict[str, Any], exclude: tuple[str, ...], reason: str) -> None:
    whole = replace(part_of(part.get("inventory", T4)), **part)
    excluded = tuple(str(gpu.uuid) for gpu in T4.gpus) if exclude else ()
    pool = pool_of_part(whole, exclude=excluded)
    assert pool.devices == ()
    assert pool.reason == reason


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.65.06", "580.65.6"),
        ("9.0", "9.0.0"),
        ("13", "13.0.0"),
        ("6.16.13-2245.22.04", "6.16.13"),
        ("1.2.3.4", "1.2.3"),
        ("0.00.01", "0.0.1"),
        ("unknown", None),
        ("", None),
        (None, None),
    ],
)
def test_versions_have_three_numbers_without_zeros(text: str | None, version: str | None) -> None:
    assert semantic_version(text) == (None if version is None else Version(version))


def test_texts_are_within_the_limit() -> None:
    found = known_attributes({"a": "é" * 40, "b": "", "c": None, "d": False, "e": 2**70, "f": " "})
    assert found == {"a": "é" * 32, "d": False}


def test_labels_are_names_of_devices() -> None:
    assert label("GPU-0 MIG 1g.5gb+me") == "gpu-0-mig-1g-5gb-me"
    assert label("ä" * 70 + "x" * 70) == "x" * 62


def test_the_pci_root_is_that_of_the_path_in_sysfs(tmp_path: Path) -> None:
    place = tmp_path / "sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0"
    place.mkdir(parents=True)
    link = tmp_path / "sys/bus/pci/devices/0000:18:00.0"
    link.parent.mkdir(parents=True)
    link.symlink_to(place)
    found = pci_attributes(str(tmp_path), "0000:18:00.0", -1)
    assert found[f"{STANDARD}/pcieRoot"] == "pci0000:15"
    assert found[f"{STANDARD}/numaNode"] is None
    assert pci_attributes(str(tmp_path), "0000:19:00.0", 1)[f"{STANDARD}/pcieRoot"] is None
    part = part_of(dump_file.load("t4"))
    address = part_bus_id(part)
    (link.parent / address).symlink_to(place)
    device = pool_of_part(part, str(tmp_path)).devices[0]
    assert device.attributes[f"{STANDARD}/pcieRoot"] == "pci0000:15"


def part_bus_id(part: VendorPart) -> str:
    described = vendor_of(part.inventory).dra_devices(part, None)
    return next(iter(described.devices.values())).place[0]
