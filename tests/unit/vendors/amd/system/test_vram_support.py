# SPDX-License-Identifier: Apache-2.0
"""Whether a node can limit the memory of AMD GPUs, and why not."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.host.hot import state
from gpuhook.kernel import cgroup
from gpuhook.vendors.amd.system import vram_support
from tests.simulated import amd_tree
from tests.simulated.amd_tree import AmdTree

TOP = {
    "cgroup.controllers": "cpu dmem",
    "cgroup.subtree_control": "cpu dmem",
    "dmem.capacity": "",
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(cgroup, "hierarchy", lambda: cgroup.V2)
    monkeypatch.setenv(state.HOST_ROOT_ENV, str(tmp_path / "node"))
    return tmp_path


def regions(tree: AmdTree) -> str:
    return "".join(f"drm/{gpu.pci_address}/vram 1\n" for gpu in tree.node.gpus)


@pytest.mark.parametrize(
    ("profile", "files", "holds", "words"),
    [
        ("radeon", {}, True, ""),
        ("radeon", {"cgroup.controllers": "cpu"}, False, "no cgroup controller dmem"),
        ("radeon", {"cgroup.subtree_control": "cpu"}, False, "it is not in"),
        ("radeon", {"dmem.capacity": "nvidia/1 1\n"}, False, "registers no memory of 0000:"),
        ("mi300x-cpx", {}, False, "limits whole GPUs"),
        # In a container the regions are not visible.
        ("radeon", {"dmem.capacity": None, "cgroup.subtree_control": ""}, True, ""),
    ],
)
def test_what_the_kernel_supports(
    profile: str, files: dict[str, str | None], holds: bool, words: str, root: Path
) -> None:
    tree = amd_tree.build(root / "node", profile)
    top = root / "cg"
    top.mkdir()
    for name, text in {**TOP, "dmem.capacity": regions(tree), **files}.items():
        if text is not None:
            (top / name).write_text(text, encoding="ascii")
    found = vram_support.limit_support(str(root / "node"), str(top))
    assert (found.holds, found.is_present) == (holds, True)
    assert words in found.reason
    assert bool(found.remedy) is not holds


def test_node_without_the_driver(root: Path) -> None:
    found = vram_support.limit_support(str(root / "node"), str(root))
    assert (found.holds, found.is_present, found.reason != "") == (False, False, True)


@pytest.mark.parametrize("version", [None, cgroup.V1])
def test_other_cgroups(version: str | None, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "hierarchy", lambda: version)
    amd_tree.build(root / "node", "radeon")
    assert "cgroup v2" in vram_support.limit_support(str(root / "node"), str(root)).reason


def test_devices_of_the_node(root: Path) -> None:
    """A partition is one that cannot be limited; a whole GPU has its UUID as another name."""
    whole = amd_tree.build(root / "node", "radeon")
    (gpu, *_), (one, *_) = whole.node.gpus, vram_support.limit_devices(str(root / "node"))
    assert (one.id, one.path, one.is_divided) == (
        gpu.pci_address,
        gpu.devices[0].render_path,
        False,
    )
    assert one.names == tuple(filter(None, ("0:0", gpu.uuid)))
    divided = amd_tree.build(root / "cpx", "mi300x-cpx")
    parts = vram_support.limit_devices(str(root / "cpx"))
    assert [part.id for part in parts] == [device.id for _, device in divided.node.devices()]
    assert all(part.is_divided for part in parts)
