# SPDX-License-Identifier: Apache-2.0
"""The bundle of a node with AMD GPUs: facts without serial numbers, messages without names."""

from __future__ import annotations

import json

import pytest

from gpuhook import support_bundle
from gpuhook.doctor import reading_collectors
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.node_facts.check import ExaminedNode
from gpuhook.node_facts.sources import node_readings
from gpuhook.node_facts.sources.node_readings import Readings
from gpuhook.node_facts.sources.node_tree import DirectoryTree
from gpuhook.support_bundle import bundle_archive, bundle_contents, log_lines
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.vendor_inventory import NodePlace
from tests.simulated import amd_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from gpuhook.support_bundle.bundle_contents import Bundle

_FACTS = [AmdVendor().support_facts()]


def _bundle(root: Path) -> Bundle:
    place = NodePlace(str(root), None, str(root))
    taken = reading_collectors.live_readings(DirectoryTree(str(root)), place)
    one = taken.of(node_readings.VENDORS)
    readings = Readings({node_readings.VENDORS: lambda: one.document})
    node = bundle_contents.recording_node(ExaminedNode(DirectoryTree(str(root)), readings))
    examine(node, checks())
    return bundle_contents.collect(node, {}, {})


def test_bundle_has_the_inventory_and_the_topology(tmp_path: Path) -> None:
    amd_tree.build(tmp_path / "node", "mi300x-cpx")
    made = _bundle(tmp_path / "node")
    path = str(tmp_path / "bundle.tar.gz")
    bundle_archive.write(path, made.members, made.made)
    node = support_bundle.bundle_node(path)
    inventory = node.readings.document(node_readings.VENDORS)["amd"]
    assert [gpu["compute_mode"] for gpu in inventory["gpus"]] == ["CPX"] * 8
    assert inventory["token"].startswith("generation=66,")
    nodes = [name for name in made.members if name.endswith("/properties")]
    assert len([name for name in nodes if "mem_banks" not in name]) == 66
    for name in ("fw_version/mec_fw_version", "vbios_version", "mem_info_vram_total"):
        found = [one for one in made.members if one.endswith(f"0000:05:00.0/{name}")]
        assert found, name


def test_bundle_has_the_isolation_of_each_gpu(tmp_path: Path) -> None:
    """The administrator sets it; nothing of gpuhook does."""
    tree = amd_tree.build(tmp_path, "mi300x8")
    for gpu in tree.node.gpus:
        (tree.gpu(gpu.pci_address) / "enforce_isolation").write_text(f"{gpu.index % 2}\n")
    members = _bundle(tmp_path).members
    found = [members[name] for name in sorted(members) if name.endswith("/enforce_isolation")]
    assert found == [b"0\n", b"1\n"] * 4


def test_bundle_has_no_serial_number(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, "mi300x8")
    serials = [gpu.serial or "" for gpu in tree.node.gpus]
    assert all(serials)
    content = b"\n".join(_bundle(tmp_path).members.values()).decode("utf-8", "replace")
    assert [one for one in serials if one in content] == []
    assert (tree.node.gpus[0].unique_id or "none") in content


def test_vendor_without_a_driver_is_not_part_of_a_bundle(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    members = _bundle(tmp_path).members
    assert json.loads(members["readings.json"])["vendors"]["document"] == {}
    assert not [name for name in members if "kfd" in name or "amdgpu" in name]


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        ("amdgpu 0000:05:00.0: amdgpu: Fetched VBIOS from ROM BAR", True),
        ("amdgpu: Skip xcp node #60 out of drm node resource", True),
        ("kfd kfd: amdgpu: added device 1002:74a1", True),
        ("[drm] amdgpu kernel modesetting enabled.", True),
        ("[drm] vmwgfx: something else", False),
        ("audit: user=alice amdgpu", False),
        ("amdgpu 0000:05:00.0: bad \x1b[31m text", False),
    ],
)
def test_only_messages_of_the_driver_are_kept(message: str, kept: bool) -> None:
    found = log_lines.kernel_line(f"[   12.345678] myhost kernel: {message}", _FACTS)
    assert found == (f"[12.345678] {message}" if kept else "")
    assert log_lines.kernel_line(f"[   12.345678] myhost kernel: {message}", ()) == ""


@pytest.mark.parametrize(
    "message",
    [
        "amdgpu 0000:05:00.0: amdgpu: Process secret-job pid 4711 thread secret-job:cs0 pid 4712",
        "amdgpu: Process information: process secret-job pid 4711 thread secret-job pid 4711",
        "amdgpu 0000:05:00.0: in process name secret-job pid 4711",
    ],
)
def test_names_of_processes_are_left_out(message: str) -> None:
    found = log_lines.kernel_line(f"[    1.5] myhost kernel: {message}", _FACTS)
    assert "secret" not in found
    assert "pid 4711" in found


@pytest.mark.parametrize("vendors", [{"amd": {}}, {}])
def test_messages_of_the_kernel_are_read_for_a_present_vendor_only(
    vendors: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/journalctl"
    program.parent.mkdir()
    program.write_text(
        "#!/bin/sh\n"
        "echo '[   12.3] myhost kernel: amdgpu 0000:05:00.0: amdgpu: GPU reset begin!'\n"
        "echo '[   12.4] myhost kernel: usb 1-1: new device'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    readings = Readings({node_readings.VENDORS: lambda: vendors})
    node = ExaminedNode(DirectoryTree(str(tmp_path)), readings)
    texts, missing = log_lines.log_lines(node, is_live=True)
    expected = "[12.3] amdgpu 0000:05:00.0: amdgpu: GPU reset begin!\n"
    assert texts == ({"logs/kernel.txt": expected} if vendors else {})
    assert missing == []
    assert log_lines.log_lines(node, is_live=False) == ({}, [])
