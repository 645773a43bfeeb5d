# SPDX-License-Identifier: Apache-2.0
"""AMD's part of a snapshot: what is lost remains, as unusable, and what is repartitioned goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.plugin_place import PluginPlace
from gpuhook.vendors.vendor_part import VendorPart
from tests.simulated import amd_profiles, amd_tree
from tests.simulated.amd_kfd_tree import Oddities
from tests.simulated.amd_tree import AmdTree
from tests.unit.amd_offering import CPX, MI300X, five_and_three, links, mi210

VENDOR = AmdVendor()
LAST = "0000:e5:00.0"


def part(tree: AmdTree) -> VendorPart | None:
    return VENDOR.plugin_part(PluginPlace(str(tree.root), str(tree.root)))


def present(tree: AmdTree) -> VendorPart:
    found = part(tree)
    assert found is not None
    return found


def ids(found: VendorPart) -> list[str]:
    assert isinstance(found.inventory, AmdNode)
    return [device.id for _, device in found.inventory.devices()]


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, MI300X)


def test_node_without_amd_has_no_part(tmp_path: Path) -> None:
    assert VENDOR.plugin_part(PluginPlace(str(tmp_path), None)) is None
    assert VENDOR.plugin_token(str(tmp_path), None) == ""


def test_profile_without_amd_has_no_part() -> None:
    assert VENDOR.dumped_part("t4") is None
    found = VENDOR.dumped_part("mi300x8")
    assert found is not None
    assert found.inventory == MI300X


def test_part_of_a_node_is_whole(tree: AmdTree) -> None:
    found = present(tree)
    assert (found.domain, found.trouble, found.is_whole) == ("amd.com", "", True)
    assert found.control_nodes == ("/dev/kfd",)
    assert found.token == VENDOR.plugin_token(str(tree.root), None)


def test_lost_gpu_remains_as_unusable(tree: AmdTree) -> None:
    before = present(tree)
    tree.lose_gpu(LAST)
    assert VENDOR.plugin_token(str(tree.root), None) != before.token
    for _ in range(2):  # also in the next snapshot
        before = VENDOR.with_lost(part(tree), before)
        assert ids(before)[-1] == LAST
        assert before.lost == {LAST: "the driver amdgpu no longer has it"}
        assert (before.is_whole, before.trouble) == (False, "")


def test_gpu_without_drm_nodes_keeps_its_place(tree: AmdTree) -> None:
    before = present(tree)
    tree.lose_drm(MI300X.gpus[2].devices[0])
    now = VENDOR.with_lost(part(tree), before)
    assert ids(now) == ids(before)
    assert "no render node" in now.lost["0000:47:00.0"]


def test_vanished_partition_remains_as_unusable(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, CPX)
    before = present(tree)
    gone = CPX.gpus[3].devices[5]
    tree.lose_drm(gone)
    now = VENDOR.with_lost(part(tree), before)
    assert set(ids(now)) == set(ids(before))
    assert now.lost == {gone.id: "the partition has vanished"}


def test_unloaded_driver_is_the_trouble_of_all_gpus(tree: AmdTree) -> None:
    before = present(tree)
    (tree.root / "sys/module/amdgpu").rename(tree.root / "sys/module/away")
    assert part(tree) is None
    now = VENDOR.with_lost(None, before)
    assert now.trouble == "the driver amdgpu is not loaded"
    assert ids(now) == ids(before)
    (tree.root / "sys/module/away").rename(tree.root / "sys/module/amdgpu")
    back = VENDOR.with_lost(part(tree), now)
    assert (back.trouble, back.lost, back.is_whole) == ("", {}, True)


def test_partitions_of_the_former_mode_are_gone(tree: AmdTree, tmp_path: Path) -> None:
    before = present(tree)
    other = amd_tree.build(tmp_path / "other", five_and_three())
    now = VENDOR.with_lost(part(other), before)
    assert (len(ids(now)), now.lost) == (5 + 24, {})
    back = VENDOR.with_lost(part(tree), now)
    assert (ids(back), back.lost) == (ids(before), {})


def test_lost_gpu_whose_partitions_have_new_owners(tmp_path: Path) -> None:
    """Ids of partitions run over all GPUs: those that another GPU has now are not lost."""
    before = present(amd_tree.build(tmp_path / "before", CPX))
    modes = ["CPX"] * 7
    left = replace(CPX, gpus=tuple(amd_profiles.mi300x(amd_profiles.BUSES[1:], modes, "NPS4")))
    now = VENDOR.with_lost(part(amd_tree.build(tmp_path / "now", left)), before)
    assert len(ids(now)) == len(set(ids(now))) == 57
    assert set(now.lost) == {"0000:05:00.0"}


def test_kfd_that_denies_reading_is_a_warning(tmp_path: Path) -> None:
    found = present(amd_tree.build(tmp_path, MI300X, odd=Oddities(is_denied=True)))
    assert len(ids(found)) == 8
    assert found.warnings


def test_scores_prefer_partitions_then_xgmi_then_pcie_then_nothing() -> None:
    scores = links(CPX)
    inside = scores.score("0000:05:00.0", "amdgpu_xcp_0")
    across = scores.score("0000:05:00.0", "0000:27:00.0")
    far = links(mi210())
    pcie, xgmi = (far.score("0000:63:00.0", f"0000:{bus}:00.0") for bus in ("e3", "43"))
    nothing = links(mi210(has_p2p=False)).score("0000:63:00.0", "0000:e3:00.0")
    assert inside > across == xgmi > pcie > nothing == 0
