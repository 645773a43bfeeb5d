# SPDX-License-Identifier: Apache-2.0
"""What requests and inventories mean to each vendor, for explain and compare."""

from __future__ import annotations

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.host.hot.settings import Settings
from gpuhook.request import plan
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.catalogue import vendor_of_node, vendors
from gpuhook.vendors.known_difference import GROUP, VARIABLE, Difference
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.nvidia_vendor import NvidiaVendor

ENVIRONMENT = {"CUDA_VERSION": "99.0", "NVIDIA_REQUIRE_CUDA": "cuda>=99.0"}
NVIDIA_NODE, AMD_NODE = dump_file.load("t4"), amd_dump.load("mi300x8")


def test_requirements_are_the_vendors() -> None:
    """The variables of CUDA images require nothing of amdgpu."""
    judged = NvidiaVendor().requests.judged_requirements(ENVIRONMENT, NVIDIA_NODE, ["/dev/nvidia0"])
    assert (judged.verdict, [one["text"] for one in judged.items]) == ("unmet", ["cuda>=99.0"])
    assert "gpuhook refuses it" in judged.effect
    assert AmdVendor().requests.judged_requirements(ENVIRONMENT, AMD_NODE, ["/dev/kfd"]).items == ()


def test_waiver_is_named() -> None:
    waived = {**ENVIRONMENT, "NVIDIA_DISABLE_REQUIRE": "true"}
    assert "NVIDIA_DISABLE_REQUIRE" in (
        NvidiaVendor().requests.judged_requirements(waived, NVIDIA_NODE, []).waiver
    )


def test_capability_of_a_driver_file() -> None:
    path = "/usr/bin/nvidia-smi"
    assert NvidiaVendor().requests.lacking_capabilities(path, frozenset()) == {"utility"}
    assert AmdVendor().requests.lacking_capabilities("/dev/dri/card0", frozenset()) == frozenset()


def test_runtime_class_is_of_one_vendor() -> None:
    names = [name for one in vendors() for name in one.requests.RUNTIME_CLASSES]
    assert len(names) == len(set(names))
    assert all(one.requests.RUNTIME_CLASSES and one.requests.PROCESS_LIST for one in vendors())


def test_request_for_a_gpu_in_mig_mode_has_a_note() -> None:
    node = dump_file.load("a100-mig")
    described = NvidiaVendor().described_node(node, Settings(), is_here=False).node
    (note,) = NvidiaVendor().requests.notes({}, described, node, ["0"], has_devices=True)
    assert note.startswith("GPU 0 is in MIG mode: only its instances can be requested, 0:0")


@pytest.mark.parametrize(
    ("vendor", "inventory", "name", "path"),
    [
        (NvidiaVendor(), NVIDIA_NODE, "0", "/dev/nvidia0"),
        (AmdVendor(), AMD_NODE, "0", "/dev/dri/renderD128"),
    ],
    ids=["nvidia", "amd"],
)
def test_inventory_describes_a_node(
    vendor: AmdVendor | NvidiaVendor, inventory: object, name: str, path: str
) -> None:
    """The plan on the node of an inventory has its device nodes, with the inventory's numbers."""
    assert vendor.owns(inventory)
    known: object = inventory
    described = vendor.described_node(known, Settings(), is_here=False)  # type: ignore[arg-type]
    assert vendor_of_node(described.node).name == vendor.name
    assert not described.node.is_here
    capabilities = frozenset(described.node.capability_words)
    injection = plan.plan_names([name], capabilities, described.node)
    nodes = {one["path"]: one for one in injection.edits.get("deviceNodes") or ()}
    assert "major" in nodes[path]
    devices = vendor.inventory_devices(known)  # type: ignore[arg-type]
    assert path in {one.node for one in devices}
    assert vendor.driver_version(known).version  # type: ignore[arg-type]


def test_node_without_gpus_is_a_fault_unless_it_may_be_empty() -> None:
    described = AmdVendor().described_node(AmdNode(), Settings(), may_be_empty=True)
    assert described.node.nodes_by_device() == {}
    with pytest.raises(GpuhookError) as refused:
        AmdVendor().described_node(AmdNode(), Settings())
    assert refused.value.code == "GH1513"


def test_difference_is_known_to_its_vendor_alone() -> None:
    """A variable of one vendor's request says nothing about another vendor's toolkit."""
    by = "amd-container-runtime"
    for vendor, name, is_known in (
        (AmdVendor(), "AMD_VISIBLE_DEVICES", True),
        (AmdVendor(), "NVIDIA_VISIBLE_DEVICES", False),
        (NvidiaVendor(), "AMD_VISIBLE_DEVICES", False),
    ):
        assert bool(vendor.traces.known_difference(by, Difference(VARIABLE, name))) is is_known
    assert not NvidiaVendor().traces.known_difference(by, Difference(GROUP, "44"))
