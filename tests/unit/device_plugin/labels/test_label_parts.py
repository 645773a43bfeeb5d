# SPDX-License-Identifier: Apache-2.0
"""The labels of nodes with GPUs of other vendors than NVIDIA, or of two vendors."""

from __future__ import annotations

import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.gpuhook_section import Own
from gpuhook.device_plugin.labels.label_parts import LabelPart, label_parts, merged
from gpuhook.device_plugin.offer import resources
from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit, UnitMemory
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Node
from gpuhook.vendors.nvidia.nvidia_vendor import NvidiaVendor
from gpuhook.vendors.nvidia.plugin import nvidia_part
from gpuhook.vendors.plugin.vendor_part import VendorPart
from tests.unit.offering import T4
from tests.unit.vendors.amd.labels.test_amd_labels import MI300X_BYTES, gpu, mi300x

NONE = Node(Driver())
GIB = 1 << 30


def offer(node: AmdNode, replicas: int = 0, **facts: Any) -> Resource:
    """Return amd.com/gpu with the devices of a node, shared if there are replicas."""
    devices = [
        Device(one.id, str(one.index), own.pci_address, own.index, (), (), own.name,
               one.memory_bytes)
        for own, one in node.devices()
    ]  # fmt: skip
    units = [Unit(f"{one.uuid}::{n}", one, n) for one in devices for n in range(replicas)]
    whole = [Unit(one.uuid, one) for one in devices]
    strategy = "time-slicing" if replicas else "none"
    return Resource("amd.com/gpu", tuple(units or whole), strategy, **facts)


def parts(
    amd: AmdNode,
    *offered: Resource,
    nvidia: Node = NONE,
    part: Any = MappingProxyType({}),
    **own: Any,
) -> dict[str, LabelPart]:
    configuration = Configuration(own=Own(**own))
    theirs = () if nvidia is NONE else resources.offered(nvidia, configuration).resources
    return label_parts(
        [nvidia_part.part(nvidia), VendorPart("amd.com", amd, **part)],
        (*theirs, *offered),
        configuration,
        host_root=None,
        call=lambda _, read: read(),
    )


def test_shared_gpus_of_amd() -> None:
    found = merged(parts(mi300x(), offer(mi300x(), replicas=4)).values())
    assert found["amd.com/gpu.product-name"] == "AMD_Instinct_MI300X_OAM"
    expected = {
        "count": "8",
        "replicas": "4",
        "sharing-strategy": "time-slicing",
        "memory": str(MI300X_BYTES >> 20),
        "replica-memory": str((MI300X_BYTES >> 20) // 4),
        "memory-limit-by": "nobody",
    }
    assert {name: found[f"amd.com/gpu.{name}"] for name in expected} == expected
    assert [name for name in found if name.startswith("nvidia.com/")] == []


def test_memory_limit_of_a_replica() -> None:
    limit = UnitMemory(40 * GIB, 40 * GIB)
    memory = {one.id: limit for _, one in mi300x().devices()}
    found = merged(parts(mi300x(), offer(mi300x(), replicas=4, memory=memory)).values())
    assert found["amd.com/gpu.replica-memory"] == str(40 * 1024)


def test_partitions_that_are_not_shared() -> None:
    found = merged(parts(mi300x(8), offer(mi300x(8))).values())
    assert found["amd.com/gpu.count"] == "64"
    assert found["amd.com/gpu.replicas"] == "1"
    assert found["amd.com/gpu.sharing-strategy"] == "none"
    assert "amd.com/gpu.memory-limit-by" not in found


def test_several_models_have_labels_of_their_own() -> None:
    node = mi300x()
    names = [replace(one, name="W6800" if one.index < 3 else one.name) for one in node.gpus]
    node = replace(node, gpus=tuple(names))
    found = merged(parts(node, offer(node)).values())
    assert found["amd.com/gpu.count"] == found["amd.com/gpu-AMD-Instinct-MI300X-OAM.count"] == "5"
    assert found["amd.com/gpu-W6800.count"] == "3"


def test_lost_devices_do_not_count() -> None:
    """The plugin's part keeps them, to list them as unhealthy."""
    lost = {"lost": {"amdgpu_xcp_3": "it has vanished", "0000:05:00.0": "it has vanished"}}
    found = merged(parts(mi300x(8), offer(mi300x(8)), part=lost).values())
    assert found["amd.com/gpu.count"] == found["beta.amd.com/gpu.vram.24G"] == "62"
    assert found["beta.amd.com/gpu.family.AI"] == "8"


def test_broken_gpu_does_not_count() -> None:
    broken = replace(mi300x().gpus[0], trouble="it has no KFD node")
    node = replace(mi300x(), gpus=(broken, *mi300x().gpus[1:]))
    found = merged(parts(node, offer(node)).values())
    assert found["amd.com/gpu.count"] == found["beta.amd.com/gpu.vram.192G"] == "7"


def test_driver_that_is_unloaded_leaves_no_labels() -> None:
    part = parts(mi300x(), offer(mi300x()), part={"trouble": "amdgpu is not loaded"})["amd.com"]
    assert part.values == {}
    assert re.fullmatch(part.names, "amd.com/gpu.vram")


def test_gpus_without_names_are_told_apart_by_size() -> None:
    node = AmdNode(gpus=(gpu(0, 24 * GIB, 96), gpu(1, GIB // 2, 2)))
    found = merged(parts(node, offer(node)).values())
    assert found["amd.com/gpu-unknown-24Gi.count"] == "1"
    assert found["amd.com/gpu-unknown-0Gi.memory"] == "512"


def test_node_with_both_vendors_has_the_labels_of_both() -> None:
    both = parts(mi300x(), offer(mi300x()), nvidia=T4, accelerator_label=True)
    found = merged(both.values())
    assert found["nvidia.com/gpu.count"] == "1"
    assert found["amd.com/gpu.count"] == "8"
    assert found["accelerator"] == "nvidia-tesla-t4"
    alone = merged(parts(mi300x(), nvidia=T4).values())
    assert {name for name in found if name.startswith("nvidia.com")} == {
        name for name in alone if name.startswith("nvidia.com")
    }


def test_accelerator_of_a_node_with_amd_only() -> None:
    found = merged(parts(mi300x(), offer(mi300x()), accelerator_label=True).values())
    assert found["accelerator"] == "amd-instinct-mi300x-oam"


def test_vendor_that_fails_costs_no_label_of_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(NvidiaVendor, "labels", lambda *_: 1 / 0)
        without = parts(mi300x(), offer(mi300x()), nvidia=T4)
    assert isinstance(without["nvidia.com"].error, ZeroDivisionError)
    assert merged(without.values())["amd.com/gpu.count"] == "8"
    monkeypatch.setattr(AmdVendor, "labels", lambda *_: 1 / 0)
    without = parts(mi300x(), offer(mi300x()), nvidia=T4)
    assert isinstance(without["amd.com"].error, ZeroDivisionError)
    assert not without["amd.com"].is_owner
    assert merged(without.values())["nvidia.com/gpu.count"] == "1"


def test_chosen_kinds() -> None:
    found = parts(mi300x(), device_labels=("vram",))["amd.com"].values
    assert sorted(found) == [
        "amd.com/gpu.vram",
        "beta.amd.com/gpu.vram",
        "beta.amd.com/gpu.vram.192G",
    ]
    assert parts(mi300x(), device_labels=())["amd.com"].values == {}


def test_owned_names_include_those_of_sharing() -> None:
    part = parts(mi300x(8), offer(mi300x(8)))["amd.com"]
    assert part.is_owner
    assert all(re.fullmatch(part.names, name) for name in part.values)
    assert re.fullmatch(part.names, "amd.com/gpu-W6800.replica-memory")
    for name in (
        "amd.com/gpu.count.x",
        "nvidia.com/gpu.count",
        "amd.com/gpu-driver",
        "accelerator",
    ):
        assert not re.fullmatch(part.names, name), name
