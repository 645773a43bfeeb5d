# SPDX-License-Identifier: Apache-2.0
"""The device of a DRM node, and when it is another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.vendors.amd.hot import amd_sysfs, node_identity
from tests.simulated import amd_tree
from tests.simulated.amd_kfd_tree import UNREADABLE
from tests.simulated.amd_tree import AmdTree
from tests.simulated.sysfs_files import write

FIRST = "0000:05:00.0"
RENDER, CARD, PARTITION = "/dev/dri/renderD128", "/dev/dri/card1", "/dev/dri/renderD131"
KFD = "/dev/kfd"


@pytest.fixture
def whole(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, "mi300x8")


@pytest.fixture
def divided(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, "mi300x-cpx")


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> AmdTree:
    """Return a second divided node, which no test changes."""
    return amd_tree.build(tmp_path_factory.mktemp("again"), "mi300x-cpx")


def test_identities(whole: AmdTree) -> None:
    """Nodes of no GPU, of all of them, and of no vendor have none."""
    paths = [KFD, RENDER, CARD, "/dev/dri/renderD99", "/dev/nvidia0"]
    assert node_identity.identities(paths, str(whole.root)) == {
        RENDER: f"{FIRST} in SPX/NPS1",
        CARD: FIRST,
    }


def test_partition(divided: AmdTree) -> None:
    found = node_identity.identities([PARTITION], f"{divided.root}/")
    assert found == {PARTITION: f"amdgpu_xcp_2 of {FIRST} in CPX/NPS4"}


def test_topology_is_read_once(divided: AmdTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container with all partitions of a node starts as fast as another one."""
    read: list[str] = []
    text = amd_sysfs.text

    def counted(path: str) -> str:
        read.append(path)
        return text(path)

    monkeypatch.setattr(amd_sysfs, "text", counted)
    paths = [one.render_path for _, one in divided.node.devices()]
    assert len(node_identity.identities(paths, str(divided.root))) == len(paths) > 60
    properties = [path for path in read if path.endswith("/properties")]
    assert len(properties) == len(set(properties))


def test_gpu_without_modes(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, "radeon")
    (card,) = (one.render_path for _, one in tree.node.devices() if one.id == "0000:03:00.0")
    assert node_identity.identities([card], str(tree.root)) == {card: "0000:03:00.0"}


def _mode(tree: AmdTree, kind: str, mode: str) -> None:
    write(tree.gpu(FIRST) / f"current_{kind}_partition", mode)


CHANGES: dict[str, tuple[Callable[[AmdTree], object], str]] = {
    "smaller": (lambda tree: _mode(tree, "compute", "QPX"), f"amdgpu_xcp_2 of {FIRST} in QPX/NPS4"),
    "memory": (lambda tree: _mode(tree, "memory", "NPS1"), f"amdgpu_xcp_2 of {FIRST} in CPX/NPS1"),
    "no partition": (
        lambda tree: shutil.rmtree(tree.kfd_node(131)),
        "amdgpu_xcp_2 that KFD does not list",
    ),
    "unbound": (
        lambda tree: (tree.root / "sys/class/drm/renderD131").unlink(),
        "no GPU or partition",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes(change: str, divided: AmdTree) -> None:
    do, now = CHANGES[change]
    before = node_identity.identities([PARTITION], str(divided.root))
    do(divided)
    (phrase,) = node_identity.changes(before, str(divided.root))
    assert phrase == f"{PARTITION} was {before[PARTITION]}, is {now}"


UNKNOWN: dict[str, Callable[[AmdTree], object]] = {
    "nothing": lambda _: None,
    "another GPU's mode": lambda tree: write(
        tree.gpu("0000:27:00.0") / "current_compute_partition", "SPX"
    ),
    "reset": lambda tree: (tree.gpu(FIRST) / "current_compute_partition").unlink(),
    "reset of all": lambda tree: _remove(*tree.gpu(FIRST).glob("current_*_partition")),
    "topology": lambda tree: tree.generation(99),
    "denied": lambda tree: _deny(*tree.kfd.glob("topology/nodes/*/properties")),
}


def _remove(*paths: Path) -> None:
    assert paths
    for path in paths:
        path.unlink()


def _deny(*paths: Path) -> None:
    _remove(*paths)
    for path in paths:
        path.symlink_to(UNREADABLE)


@pytest.mark.parametrize("change", UNKNOWN)
def test_what_is_unknown_is_no_change(change: str, divided: AmdTree, again: AmdTree) -> None:
    """In both directions: the reset may have been at the start of the container."""
    root = str(divided.root)
    before = node_identity.identities([PARTITION], root)
    UNKNOWN[change](divided)
    assert node_identity.changes(before, root) == []
    later = node_identity.identities([PARTITION], root)
    assert node_identity.changes(later, str(again.root)) == []
