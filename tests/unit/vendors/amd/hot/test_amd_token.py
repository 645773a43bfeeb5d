# SPDX-License-Identifier: Apache-2.0
"""The change token: what changes it, and what does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.vendors.amd.hot import amd_sysfs, amd_token
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree
from tests.simulated.sysfs_files import link, write

FIRST = "0000:05:00.0"


@pytest.fixture(name="tree")
def mi300x8(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, "mi300x8")


def test_no_driver(tmp_path: Path) -> None:
    assert amd_token.token(str(tmp_path)) == ""


def test_driver_without_kfd_and_gpus(tmp_path: Path) -> None:
    (tmp_path / "sys/module/amdgpu/drivers/pci:amdgpu").mkdir(parents=True)
    assert amd_token.token(f"{tmp_path}/") == "generation=,gpus=0:00000000,nodes=0:00000000,modes="


CHANGES: dict[str, tuple[Callable[[AmdTree], object], set[str]]] = {
    "topology": (lambda tree: tree.generation(11), {"generation"}),
    "mode": (
        lambda tree: write(tree.gpu(FIRST) / "current_compute_partition", "CPX"),
        {"modes"},
    ),
    "memory mode": (
        lambda tree: write(tree.gpu(FIRST) / "current_memory_partition", "NPS4"),
        {"modes"},
    ),
    "lost GPU": (lambda tree: tree.lose_gpu(FIRST), {"generation", "gpus", "nodes", "modes"}),
    "other minor": (
        lambda tree: _renamed(tree, "renderD128", "renderD300"),
        {"nodes"},
    ),
    "lost partition device": (
        lambda tree: (tree.root / "sys/class/drm/renderD129").unlink(),
        {"nodes"},
    ),
}


def _renamed(tree: AmdTree, old: str, new: str) -> None:
    place = tree.gpu(FIRST) / "drm"
    (place / old).rename(place / new)
    (tree.root / "sys/class/drm" / old).unlink()
    link(tree.root / "sys/class/drm" / new, place / new)


@pytest.mark.parametrize("name", CHANGES)
def test_changes(tree: AmdTree, name: str) -> None:
    """The parts that changed are named, and no others."""
    change, parts = CHANGES[name]
    before = amd_token.token(str(tree.root))
    change(tree)
    after = amd_token.token(str(tree.root))
    phrases = amd_token.differences(before, after)
    assert {phrase.partition(":")[0] for phrase in phrases} == parts
    assert amd_token.differences(after, after) == []


def test_what_does_not_change_it(tree: AmdTree) -> None:
    """Load, used memory, connectors, and DRM devices of another driver."""
    before = amd_token.token(str(tree.root))
    write(tree.gpu(FIRST) / "mem_info_vram_used", 1 << 30)
    write(tree.gpu(FIRST) / "gpu_busy_percent", 99)
    tree.process(4711, {8919: 1 << 30})
    other = tree.root / "sys/devices/pci0000:00/0000:00:02.0/drm/renderD200"
    other.mkdir(parents=True)
    link(tree.root / "sys/class/drm/renderD200", other)
    link(tree.root / "sys/class/drm/card1-DP-1", tree.gpu(FIRST) / "drm/card1")
    write(tree.root / "sys/class/drm/version", "drm 1.1.0 20060810")
    assert amd_token.token(str(tree.root)) == before


def test_phrases() -> None:
    assert amd_token.differences("generation=1,modes=SPX*1", "generation=2") == [
        "generation: was 1, is 2",
        "modes: was SPX*1, is none",
    ]


def test_a_mode_that_cannot_be_read(tree: AmdTree) -> None:
    """As during a reset; the mode of a GPU that has no such file is also unknown."""
    shutil.rmtree(tree.gpu(FIRST) / "drm")
    (tree.gpu(FIRST) / "current_compute_partition").unlink()
    write(tree.gpu(FIRST) / "current_memory_partition", "a,b=c")
    assert amd_token.token(str(tree.root)).endswith(",modes=-/-*1+SPX/NPS1*7")


@pytest.mark.parametrize(
    "name",
    ["pci:amdgpu", "0000:05:00", "0000:05:00.x", "module", "000:05:00.0", "bind", "0000:05:00:0"],
)
def test_other_names_are_no_addresses(name: str) -> None:
    assert not amd_sysfs.is_address(name)


def test_order_of_addresses(tree: AmdTree) -> None:
    """By domain as a number; a domain may have more than four digits."""
    for address in ("10000:01:00.0", "0001:00:00.0"):
        link(tree.root / "sys/module/amdgpu/drivers/pci:amdgpu" / address, tree.gpu(FIRST))
    addresses = amd_sysfs.gpu_addresses(str(tree.root))
    assert addresses[-2:] == ["0001:00:00.0", "10000:01:00.0"]
    assert addresses[0] == FIRST


def test_ids_of_partitions() -> None:
    """Both spellings of the kernel have one id; others are no partitions."""
    assert amd_sysfs.partition_id("amdgpu_xcp.12") == "amdgpu_xcp_12"
    assert amd_sysfs.partition_id("amdgpu_xcp_12") == "amdgpu_xcp_12"
    for name in ("amdgpu_xcp", "amdgpu_xcp_", "amdgpu_xcp-1", "amdgpu_xcp_1a", "amdgpu_xcp_²"):
        assert amd_sysfs.partition_id(name) is None
