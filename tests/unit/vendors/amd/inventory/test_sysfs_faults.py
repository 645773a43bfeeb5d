# SPDX-License-Identifier: Apache-2.0
"""Trees that are broken, hidden in part, or change while they are read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.vendors.amd.hot import amd_token
from gpuhook.vendors.amd.inventory import kfd_topology, sysfs_inventory
from gpuhook.vendors.amd.inventory.amd_inventory import AmdDriver, AmdNode
from gpuhook.vendors.amd.inventory.kfd_topology import KfdTopology
from tests.simulated import amd_profiles, amd_tree
from tests.simulated.amd_kfd_tree import Oddities
from tests.simulated.amd_tree import AmdTree
from tests.simulated.sysfs_files import link, write

FIRST = "0000:05:00.0"
DEV = "device cgroup of the reader must allow rw of their render nodes (226:*)"


@pytest.fixture(name="tree")
def mi300x8(tmp_path: Path) -> AmdTree:
    return amd_tree.build(tmp_path, "mi300x8")


def read(tree: AmdTree) -> AmdNode:
    """Return what gpuhook reads of a tree; its /dev is empty, which is a warning for each node."""
    found = sysfs_inventory.read(str(tree.root), str(tree.root))
    return replace(found, warnings=tuple(w for w in found.warnings if "/dev/" not in w))


def indices(node: AmdNode) -> list[tuple[str, int]]:
    return [(device.id, device.index) for _, device in node.devices()]


def test_no_driver(tmp_path: Path) -> None:
    """A machine without amdgpu has no AMD part, whatever else is there."""
    (tmp_path / "sys/class/drm").mkdir(parents=True)
    assert sysfs_inventory.read(str(tmp_path), str(tmp_path)) == AmdNode()


def test_driver_that_loads(tmp_path: Path) -> None:
    """The module is there, its directory of GPUs is not: the driver has no GPU yet."""
    write(tmp_path / "sys/module/amdgpu/initstate", "coming")
    found = sysfs_inventory.read(str(tmp_path), str(tmp_path))
    assert found == AmdNode(AmdDriver())


def test_gpu_without_drm_nodes_is_skipped(tree: AmdTree) -> None:
    """The GPU has its trouble; no other one gets its minors, and indices have no gap."""
    shutil.rmtree(tree.gpu("0000:27:00.0") / "drm")
    node = read(tree)
    lost = node.gpus[1]
    assert (lost.pci_address, lost.devices) == ("0000:27:00.0", ())
    assert "no render node" in str(lost.trouble)
    assert [gpu.trouble for gpu in node.gpus if gpu is not lost] == [None] * 7
    assert [one.render_minor for _, one in node.devices()] == [128, 144, 152, 160, 168, 176, 184]
    assert [one.index for _, one in node.devices()] == list(range(7))
    assert "renderD136" in node.warnings[0]
    assert "no DRM device" in node.warnings[0]


def test_gpu_without_kfd_node(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, "mi300x8", odd=Oddities(without_kfd=frozenset({FIRST})))
    node = read(tree)
    assert "KFD does not list it" in str(node.gpus[0].trouble)
    assert (node.gpus[0].devices, node.gpus[0].vram_bytes) == ((), 196592 << 20)
    assert indices(node)[0] == ("0000:27:00.0", 0)


def test_kernel_without_kfd(tmp_path: Path) -> None:
    node = read(amd_tree.build(tmp_path, "radeon", odd=Oddities(has_kfd=False)))
    assert [gpu.devices for gpu in node.gpus] == [(), ()]
    assert all("the kernel has no KFD" in str(gpu.trouble) for gpu in node.gpus)


def test_denied_topology_of_whole_gpus(tmp_path: Path) -> None:
    """Whole GPUs are given without KFD's facts, and the warning names the missing privilege."""
    node = read(amd_tree.build(tmp_path, "mi300x8", odd=Oddities(is_denied=True)))
    assert indices(node) == [(gpu.pci_address, gpu.index) for gpu in node.gpus]
    first = node.gpus[0].devices[0]
    assert (first.render_minor, first.kfd_id, first.gfx, first.links) == (128, None, None, ())
    assert first.memory_bytes == 196592 << 20
    (warning,) = node.warnings
    assert warning.startswith("KFD does not let this process read 8 of its nodes: ")
    assert DEV in warning


def test_denied_topology_of_partitions(tmp_path: Path) -> None:
    """Partitions look like dead ones: the first of each GPU remains, with warnings."""
    node = read(amd_tree.build(tmp_path, "mi300x-cpx", odd=Oddities(is_denied=True)))
    assert [one.id for _, one in node.devices()] == [gpu.pci_address for gpu in node.gpus]
    assert {one.memory_bytes for _, one in node.devices()} == {None}
    assert DEV in node.warnings[0]
    assert node.warnings[1].startswith(f"GPU {FIRST} is in mode CPX: its partitions but the first")
    assert len(node.warnings) == 9


def test_permission_for_one_gpu_only(tmp_path: Path, tree: AmdTree) -> None:
    """Files of the other GPUs are refused, as to a container with one GPU."""
    denied = amd_tree.build(tmp_path / "denied", "mi300x8", odd=Oddities(is_denied=True))
    source = tree.kfd_node(128)
    target = denied.kfd / "topology/nodes" / source.name
    shutil.rmtree(target)
    shutil.copytree(source, target)
    devices = [one for _, one in read(denied).devices()]
    assert [one.gfx for one in devices] == ["gfx942", *[None] * 7]


def test_old_kernel_without_domains(tmp_path: Path) -> None:
    """KFD of the Vega era: no domain, gfx version, hive or peer links; GPUs are still apart."""
    node = read(amd_tree.build(tmp_path, amd_profiles.mixed_amd(), odd=Oddities(is_old=True)))
    assert [(gpu.pci_address, len(gpu.devices)) for gpu in node.gpus] == [
        ("0000:c3:00.0", 1),
        ("0000:e3:00.0", 1),
    ]
    assert [(one.gfx, one.cu_count) for _, one in node.devices()] == [(None, 104), (None, 104)]
    assert [gpu.hive_id for gpu in node.gpus] == [None, None]


def test_partitions_without_a_domain(tmp_path: Path) -> None:
    """A bus that occurs in one domain only is enough to find the GPU of a partition."""
    node = read(amd_tree.build(tmp_path, "mi300x-cpx", odd=Oddities(is_old=True)))
    assert [len(gpu.devices) for gpu in node.gpus] == [8] * 8


def test_partition_of_an_unknown_gpu(tmp_path: Path) -> None:
    tree = amd_tree.build(tmp_path, "mi300x-cpx")
    properties = tree.kfd_node(129) / "properties"
    text = properties.read_text("ascii").replace("location_id 1281\n", "location_id 65281\n")
    properties.write_text(text, "ascii")
    node = read(tree)
    assert len(list(node.devices())) == 63
    assert node.warnings[0] == "amdgpu_xcp_0: its GPU is unknown, so it is left out"


def test_partition_numbers_of_older_kernels(tmp_path: Path) -> None:
    """The number of a partition is in the upper bits of its location; one partition is lost."""
    tree = amd_tree.build(tmp_path, "mi300x-cpx")
    for number in range(8):
        properties = tree.kfd_node(128 + number) / "properties"
        old, new = 0x500 + number, 0x500 + (number << 28)
        text = properties.read_text("ascii").replace(f"location_id {old}\n", f"location_id {new}\n")
        properties.write_text(text, "ascii")
    shutil.rmtree(tree.kfd_node(130))
    assert [one.partition for one in read(tree).gpus[0].devices] == [0, 1, 3, 4, 5, 6, 7]


def test_unique_id_of_zero_and_of_another_form(tree: AmdTree) -> None:
    for address, text in (("05", "0000000000000000"), ("27", "none"), ("47", "0xABCDEF")):
        write(tree.gpu(f"0000:{address}:00.0") / "unique_id", text)
    for minor in (128, 136):
        properties = tree.kfd_node(minor) / "properties"
        lines = properties.read_text("ascii").splitlines()
        kept = [line for line in lines if not line.startswith("unique_id")]
        properties.write_text("\n".join([*kept, "unique_id 0"]), "ascii")
    uuids = [gpu.uuid for gpu in read(tree).gpus[:3]]
    assert uuids == [None, None, "GPU-0000000000abcdef"]


def test_unique_id_that_only_kfd_has(tree: AmdTree) -> None:
    (tree.gpu(FIRST) / "unique_id").unlink()
    assert read(tree).gpus[0].unique_id == tree.node.gpus[0].unique_id


def test_two_gpus_with_one_unique_id(tree: AmdTree) -> None:
    """Neither has an id by which it could be requested, and both are named."""
    other = tree.node.gpus[3].unique_id
    write(tree.gpu(FIRST) / "unique_id", other)
    node = read(tree)
    assert [gpu.unique_id is None for gpu in node.gpus] == [True, False, False, True, *[False] * 4]
    assert node.warnings == tuple(
        f"GPU {address}: 2 GPUs have the unique id {other}, which is ignored"
        for address in (FIRST, "0000:65:00.0")
    )


def test_graphics_of_a_management_controller(tmp_path: Path) -> None:
    """Its card0 is no device, and the token does not depend on it."""
    plain = amd_tree.build(tmp_path / "plain", "radeon")
    odd = amd_tree.build(tmp_path / "odd", "radeon", odd=Oddities(bmc_card=0))
    assert (odd.root / "sys/class/drm/card0").exists()
    assert read(odd).gpus == read(plain).gpus
    assert read(odd).token == read(plain).token


def test_two_thousand_render_nodes(tree: AmdTree) -> None:
    """Dead partitions are left out, however many there are."""
    for number in range(100, 2100):
        place = tree.root / f"sys/devices/platform/amdgpu_xcp_{number}"
        write(place / f"drm/renderD{number + 200}/dev", f"226:{number + 200}")
        link(
            tree.root / f"sys/class/drm/renderD{number + 200}", place / f"drm/renderD{number + 200}"
        )
    node = read(tree)
    assert node.gpus == tree.node.gpus
    assert node.warnings == ()


def test_many_kfd_nodes_and_links(tree: AmdTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bounds nothing is read, which a warning reports."""
    monkeypatch.setattr(kfd_topology, "_MAX_LINKS", 20)
    monkeypatch.setattr(kfd_topology, "_MAX_NODES", 5)
    found = kfd_topology.read(str(tree.root))
    assert found.warnings == (
        "KFD has 10 nodes: only the first 5 were read",
        "KFD has more than 20 links: the others were not read",
    )
    assert [len(node.links) for node in found.nodes] == [8, 8, 3]


def test_partition_that_vanishes_while_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change during the first read: the second one has the 63 others, consistently."""
    tree = amd_tree.build(tmp_path, "mi300x-cpx")
    actual, reads = kfd_topology.read, []

    def vanishing(host_root: str) -> KfdTopology:
        reads.append(host_root)
        found = actual(host_root)
        if len(reads) == 1:
            shutil.rmtree(tree.kfd_node(133))
            tree.lose_drm(tree.node.gpus[0].devices[5])
            tree.generation(67)
        return found

    monkeypatch.setattr(kfd_topology, "read", vanishing)
    node = read(tree)
    assert len(reads) == 2
    assert [one.partition for one in node.gpus[0].devices] == [0, 1, 2, 3, 4, 6, 7]
    assert node.token == amd_token.token(str(tree.root))
    assert node.token.startswith("generation=67,")
    assert ["partitions" in warning for warning in node.warnings] == [True]


def test_devices_that_never_rest(tree: AmdTree, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that changes at each read is given as it was last seen, with a warning."""
    actual, numbers = kfd_topology.read, iter(range(100, 200))

    def changing(host_root: str) -> KfdTopology:
        tree.generation(next(numbers))
        return actual(host_root)

    monkeypatch.setattr(kfd_topology, "read", changing)
    node = read(tree)
    assert len(node.gpus) == 8
    assert node.warnings == ("the AMD devices changed while they were read",)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


BREAKS: dict[str, Callable[[Path], object]] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "huge": lambda path: path.write_bytes(b"x 1\n" * (1 << 20)),
    "without numbers": lambda path: path.write_text("simd_count\n\nlocation_id -3\ndomain 0x1\n"),
    "fifo": _fifo,
    "directory": _directory,
}


@pytest.mark.parametrize("how", BREAKS)
def test_broken_files_of_one_gpu(tree: AmdTree, how: str) -> None:
    """Each file of a GPU in turn: the other GPUs are the same, and nothing is made up."""
    whole = read(tree)
    files = [one for one in tree.gpu(FIRST).iterdir() if one.is_file()]
    assert len(files) > 20
    for path in files:
        content = path.read_bytes()
        BREAKS[how](path)
        node = read(tree)
        assert node.gpus[1:] == whole.gpus[1:], path
        for name in ("pci_address", "devices"):
            assert getattr(node.gpus[0], name) == getattr(whole.gpus[0], name), path
        assert _is_part_of(node.gpus[0], whole.gpus[0]), path
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(content)


def _is_part_of(found: object, whole: object) -> bool:
    """Return whether each fact is the same or unknown."""
    names = type(whole).__slots__  # type: ignore[attr-defined]
    pairs = [(getattr(found, name), getattr(whole, name)) for name in names]
    return all(one in (None, (), other) for one, other in pairs)


def _endless(path: Path) -> None:
    path.write_text("9" * 5000)  # int() refuses so many digits


@pytest.mark.parametrize("how", [*BREAKS.values(), _endless], ids=[*BREAKS, "endless"])
@pytest.mark.parametrize("name", ["properties", "gpu_id", "mem_banks/0/properties"])
def test_broken_files_of_a_kfd_node(
    tree: AmdTree, how: Callable[[Path], object], name: str
) -> None:
    """The GPU has less facts, or is in trouble; the others keep theirs, but the links to it."""
    how(tree.kfd_node(128) / name)
    node = read(tree)
    assert [gpu.pci_address for gpu in node.gpus] == [g.pci_address for g in tree.node.gpus]
    assert [gpu.trouble for gpu in node.gpus[1:]] == [None] * 7
    assert bool(node.gpus[0].devices) != bool(node.gpus[0].trouble)
    assert [one.gfx for gpu in node.gpus[1:] for one in gpu.devices] == ["gfx942"] * 7


@pytest.mark.parametrize("name", ["current_compute_partition", "available_compute_partition"])
@pytest.mark.parametrize("text", ["UNKNOWN", "", "x" * 100, "C\tPX", "\0\1\2"])
def test_unknown_modes(tree: AmdTree, name: str, text: str) -> None:
    """A mode that is no word is unknown, and nothing else changes."""
    (tree.gpu(FIRST) / name).write_text(text + "\n", "ascii")
    gpu = read(tree).gpus[0]
    assert gpu.compute_mode == (None if name.startswith("current") else "SPX")
    assert gpu.compute_modes in ((), ("SPX", "DPX", "QPX", "CPX"))
    assert len(gpu.devices) == 1


def test_device_nodes_of_other_numbers(tmp_path: Path) -> None:
    """A node with wrong numbers, one that is a file, and one that is missing are left out."""
    tree = amd_tree.build(tmp_path, "radeon", real_nodes=True, kfd_major=511)
    card, render = tmp_path / "dev/dri/card1", tmp_path / "dev/dri/renderD128"
    card.unlink()
    render.unlink()
    os.mknod(render, 0o600 | 0o020000, os.makedev(226, 140))
    (tmp_path / "dev/dri/card2").unlink()
    write(tmp_path / "dev/dri/card2", "")
    node = sysfs_inventory.read(str(tree.root), str(tree.root))
    assert [(one.path, one.major) for one in node.device_nodes] == [
        ("/dev/kfd", 511),
        ("/dev/dri/renderD129", 226),
    ]
    assert node.warnings == (
        f"{card}: no such device node",
        f"{render} is not the character device 226:128: left out",
        f"{tmp_path}/dev/dri/card2 is not the character device 226:2: left out",
    )


def test_kfd_with_an_old_major(tmp_path: Path) -> None:
    """The major of KFD changes with the kernel: a node of the last boot is left out."""
    tree = amd_tree.build(tmp_path, "radeon", real_nodes=True, kfd_major=511)
    devices = tmp_path / "proc/devices"
    devices.write_text(devices.read_text("ascii").replace("511 kfd", "234 kfd"), "ascii")
    node = sysfs_inventory.read(str(tree.root), str(tree.root))
    assert node.warnings == (f"{tmp_path}/dev/kfd is not the character device 234:0: left out",)
