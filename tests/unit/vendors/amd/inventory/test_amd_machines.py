# SPDX-License-Identifier: Apache-2.0
"""What gpuhook reads of machines whose numbers are known, from trees with the kernel's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.vendors.amd.inventory import sysfs_inventory
from gpuhook.vendors.amd.inventory.amd_inventory import PCIE, XGMI, AmdNode
from tests.simulated import amd_machines, amd_profiles, amd_tree
from tests.simulated.amd_kfd_tree import Oddities

GIB = 1 << 30


def read(root: Path, node: AmdNode | str, odd: Oddities | None = None) -> AmdNode:
    """Return what gpuhook reads of the tree of a node."""
    tree = amd_tree.build(root, node, real_nodes=True, odd=odd or Oddities())
    return sysfs_inventory.read(str(tree.root), str(tree.root))


@pytest.mark.parametrize("name", [*amd_machines.MACHINES, *amd_profiles.PROFILES])
def test_a_tree_is_read_as_it_was_built(tmp_path: Path, name: str) -> None:
    """All facts, the order and the device nodes; there is no further warning."""
    node = (amd_machines.MACHINES | amd_profiles.PROFILES)[name]()
    found = read(tmp_path, node)
    assert found.gpus == node.gpus
    assert found.device_nodes == node.device_nodes
    assert (found.driver, found.token) == (node.driver, node.token)


def test_mi308x_in_quarters(tmp_path: Path) -> None:
    """32 devices on two domains; KFD has 31 XGMI links of each, weight 13 inside and 41 outside."""
    node = read(tmp_path, amd_machines.mi308x8_quarters())
    devices = [one for _, one in node.devices()]
    assert [one.index for one in devices] == list(range(32))
    minors = [128 + 8 * gpu + part for gpu in range(8) for part in range(4)]
    assert [one.render_minor for one in devices] == minors
    assert {one.cu_count for one in devices} == {20}
    assert [one.memory_bytes for one in devices[:4]] == [48 * GIB] * 3 + [48 * GIB - (16 << 20)]
    assert [gpu.pci_address for gpu in node.gpus[3:5]] == ["0000:c8:00.0", "0001:0b:00.0"]
    weights = [link.weight for link in devices[5].links]
    assert (len(weights), weights.count(13), weights.count(41)) == (31, 3, 28)
    assert {link.type for link in devices[5].links} == {XGMI}
    assert (devices[5].id, devices[5].partition) == ("amdgpu_xcp_7", 1)
    assert node.token.startswith("generation=33,gpus=8:")


def test_mi300x_cpx_with_63_partitions(tmp_path: Path) -> None:
    """A BMC took a DRM node: the GPU with seven partitions is named, and all others are given."""
    node = read(tmp_path, amd_machines.mi300x_cpx_63(), Oddities(bmc_card=0))
    devices = [one for _, one in node.devices()]
    assert len(devices) == 63
    assert [one.render_minor for one in devices] == list(range(128, 191))
    assert {one.simd_count for one in devices} == {152}
    (warning,) = node.warnings
    assert warning.startswith("GPU 0000:e5:00.0 has 7 partitions and others of its kind have 8: ")


def test_mi210_in_two_hives(tmp_path: Path) -> None:
    """Devices are in the order of PCI addresses, which is not that of the render nodes."""
    node = read(tmp_path, amd_machines.mi210_two_hives())
    buses = [gpu.pci_address[5:7] for gpu in node.gpus]
    assert " ".join(buses) == "03 26 43 63 83 a3 c3 e3"
    devices = [one for _, one in node.devices()]
    assert [one.render_minor for one in devices] == [130, 131, 129, 128, 134, 135, 133, 132]
    assert len({gpu.hive_id for gpu in node.gpus}) == 2
    near = [link for link in devices[0].links if link.type == XGMI]
    far = [link for link in devices[0].links if link.type == PCIE]
    assert [link.render_minor for link in near] == [128, 129, 131]
    assert {link.weight for link in near} == {15}
    assert [(link.render_minor, link.weight) for link in far] == [
        (132, 72), (133, 72), (134, 72), (135, 72),
    ]  # fmt: skip


def test_mi210_without_peer_links(tmp_path: Path) -> None:
    """An older kernel has no p2p_links: the pairs of two hives have no link."""
    node = read(tmp_path, amd_machines.mi210_two_hives(), Oddities(is_old=True))
    assert [len(one.links) for _, one in node.devices()] == [3] * 8


@pytest.mark.parametrize("is_dotted", [True, False])
def test_mi300a_with_dead_partitions(tmp_path: Path, is_dotted: bool) -> None:
    """The same bus in four domains; 28 platform devices that the mode does not use."""
    node = read(tmp_path, amd_machines.mi300a_x4(), Oddities(is_dotted=is_dotted))
    platform = sorted(one.name for one in (tmp_path / "sys/devices/platform").iterdir())
    assert len(platform) == 28
    assert ("amdgpu_xcp.27" if is_dotted else "amdgpu_xcp_27") in platform
    assert [gpu.pci_address for gpu in node.gpus] == [f"000{n}:02:00.0" for n in range(4)]
    assert [(d.card_minor, d.render_minor) for _, d in node.devices()] == [
        (0, 128), (8, 136), (16, 144), (24, 152),
    ]  # fmt: skip
    assert {(d.simd_count, d.cu_count, d.xcc_count) for _, d in node.devices()} == {(912, 228, 6)}
    assert len({gpu.unique_id for gpu in node.gpus}) == 4


def test_mi355x(tmp_path: Path) -> None:
    """Card, render node and NUMA node of each bus."""
    node = read(tmp_path, amd_machines.mi355x8())
    found = {
        gpu.pci_address[5:7]: (one.card_minor, one.render_minor, gpu.numa_node)
        for gpu, one in node.devices()
    }
    assert found == {
        "05": (9, 136, 1),
        "15": (25, 152, 2),
        "65": (17, 144, 3),
        "75": (1, 128, 0),
        "85": (41, 168, 5),
        "95": (57, 184, 6),
        "e5": (49, 176, 7),
        "f5": (33, 160, 4),
    }
    assert {one.gfx for _, one in node.devices()} == {"gfx950"}
    assert "GPU-08da82c12ef81b5d" in [gpu.uuid for gpu in node.gpus]


def test_mixed_modes(tmp_path: Path) -> None:
    """Five GPUs in SPX and three in CPX have 5 + 24 devices, numbered in the order of the GPUs."""
    modes = ["SPX"] * 5 + ["CPX"] * 3
    gpus = amd_profiles.mi300x(amd_profiles.BUSES, modes)
    node = read(tmp_path, amd_profiles.finished(gpus, generation=20))
    assert [len(gpu.devices) for gpu in node.gpus] == [1] * 5 + [8] * 3
    assert [one.index for _, one in node.devices()] == list(range(29))
    assert node.token.endswith("modes=SPX/NPS1*5+CPX/NPS1*3")
    assert node.warnings == ()
