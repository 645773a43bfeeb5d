# SPDX-License-Identifier: Apache-2.0
"""Which AMD devices a container has, by its device nodes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.host.hot import state
from gpuhook.request import parse
from gpuhook.vendors.amd.hot.amd_memory import AmdMemory
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.hot.memory_vendors import memory_vendors, vendor_of
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree


@pytest.fixture(params=["mi300x8", "mi300x-cpx", "mixed"])
def tree(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AmdTree:
    monkeypatch.setenv(state.HOST_ROOT_ENV, str(tmp_path))
    return amd_tree.build(tmp_path, request.param)


def ids(*nodes: str) -> list[str]:
    return AmdMemory().devices({}, nodes, [], list)


def test_each_render_node_is_its_device(tree: AmdTree) -> None:
    """The ids are those of the inventory; /dev/kfd and display nodes name no device."""
    devices = [device for _, device in tree.node.devices()]
    nodes = [path for one in devices for path in (one.card_path, one.render_path) if path]
    assert ids("/dev/kfd", *nodes, *nodes) == [one.id for one in devices]
    assert all(AmdMemory().has_device(one.id) for one in devices)


def test_only_whole_gpus_have_a_size(tree: AmdTree) -> None:
    """The first partition has the address of its GPU, and not its memory."""
    sizes = {
        device.id: gpu.vram_bytes
        for gpu, device in tree.node.devices()
        if not gpu.is_partitioned and gpu.vram_bytes
    }
    assert AmdMemory().totals([device.id for _, device in tree.node.devices()]) == sizes
    gpu = tree.node.gpus[0].pci_address
    (tree.gpu(gpu) / "mem_info_vram_total").write_text("9" * 5000)
    assert AmdMemory().totals([gpu]) == {}


def test_nodes_of_other_drivers_are_no_devices(tree: AmdTree) -> None:
    """A render node of NVIDIA's driver, of a BMC, and one that does not exist."""
    other = tree.root / "sys/devices/pci0000:f0/0000:f0:00.0/drm/renderD250"
    other.mkdir(parents=True)
    link = tree.root / "sys/class/drm/renderD250"
    link.symlink_to(Path("../..") / other.relative_to(tree.root / "sys"))
    assert ids("/dev/dri/renderD250", "/dev/dri/renderD251", "/dev/nvidia0") == []


@pytest.mark.parametrize(
    ("device", "domain"),
    [
        ("0000:05:00.0", "amd.com"),
        ("amdgpu_xcp_3", "amd.com"),
        ("GPU-17f0d8b6-c4e2-4a9b-8f63-2d5e90a1c7f8", "nvidia.com"),
        ("MIG-17f0d8b6-c4e2-4a9b-8f63-2d5e90a1c7f8", "nvidia.com"),
        ("amdgpu_xcp.3", "nvidia.com"),  # no id: the first vendor reports it as unknown
    ],
)
def test_vendor_of_a_device(device: str, domain: str) -> None:
    assert vendor_of(device).domain == domain


def test_variables_of_all_vendors_are_found() -> None:
    """parse.limits_memory() knows the ends of their names only."""
    assert [one.domain for one in memory_vendors()] == [one.domain for one in vendors()]
    for vendor in memory_vendors():
        words = vendor.vocabulary
        for name in (words.memory_limit_env, words.memory_request_env):
            spec = {"process": {"env": [f"{name}=1"]}}
            assert parse.limits_memory(spec)
