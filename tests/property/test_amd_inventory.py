# SPDX-License-Identifier: Apache-2.0
"""Any node with AMD GPUs: tree, dump and reader agree; no content of files breaks the reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as some

from gpuhook.vendors.amd.inventory import amd_dump, sysfs_inventory
from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode
from gpuhook.vendors.inventory import inventory_file
from gpuhook.vendors.inventory.inventory_document import SCHEMA
from tests.depth import depth
from tests.simulated import amd_profiles, amd_tree
from tests.simulated.amd_kfd_tree import Oddities

ROWS = some.lists(
    some.tuples(
        some.integers(0, 0x1FFFF),  # domain
        some.integers(0, 255),  # bus
        some.integers(0, 31),  # device
        some.sampled_from(["", "SPX", "DPX", "QPX", "CPX"]),
        some.one_of(some.none(), some.integers(0, 3)),  # NUMA node
        some.one_of(some.none(), some.integers(1, 2**63)),  # unique id
        some.booleans(),  # a board that knows its name
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda row: row[:3],
)
TEXT = some.text(some.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)
PARTS = {"": 1, "SPX": 1, "DPX": 2, "QPX": 4, "CPX": 8}


@some.composite
def nodes(draw: some.DrawFn) -> AmdNode:
    """Return a node that the kernel could show."""
    gpus: list[AmdGpu] = []
    taken: set[str] = set()
    count = 0
    rows = sorted(draw(ROWS))
    for index, (domain, bus, device, mode, numa, number, is_board) in enumerate(rows):
        address = f"{domain:04x}:{bus:02x}:{device:02x}.0"
        unique_id = None if number is None else f"{number:016x}"
        unique_id = None if unique_id in taken else unique_id
        taken |= {unique_id} if unique_id else set()
        modes = tuple(PARTS)[1:] if mode else ()
        gpus.append(
            AmdGpu(
                index=index,
                pci_address=address,
                unique_id=unique_id,
                name=draw(TEXT) if is_board else None,
                device_id=f"{draw(some.integers(1, 0xFFFF)):04x}",
                serial=draw(TEXT) if is_board else None,
                vram_bytes=draw(some.integers(1, 2**50)),
                numa_node=numa,
                hive_id=draw(some.one_of(some.none(), some.integers(1, 2**64 - 1))),
                compute_mode=mode or None,
                memory_mode="NPS1" if mode else None,
                compute_modes=modes,
                memory_modes=("NPS1", "NPS4") if mode else (),
                family="AI",
                devices=_devices(draw, index, address, PARTS[mode], count),
            )
        )
        count += PARTS[mode]
    return amd_profiles.finished(amd_profiles.linked(gpus), draw(some.integers(0, 99)))


def _devices(
    draw: some.DrawFn, gpu: int, address: str, parts: int, first: int
) -> tuple[AmdDevice, ...]:
    units = draw(some.integers(1, 304))
    return tuple(
        AmdDevice(
            index=first + part,
            id=address if part == 0 else f"amdgpu_xcp_{gpu * 7 + part - 1}",
            partition=part,
            render_minor=128 + gpu * 8 + part,
            card_minor=draw(some.sampled_from([None, 1 + gpu * 8 + part])),
            kfd_id=1 + gpu * 8 + part,
            gfx="gfx90a",
            memory_bytes=draw(some.integers(1, 2**50)),
            simd_count=units * 4,
            cu_count=units,
            xcc_count=draw(some.sampled_from([None, 1, 8])),
        )
        for part in range(parts)
    )


@settings(deadline=None, max_examples=depth(12, 100))
@given(nodes(), some.booleans(), some.booleans())
def test_tree_and_dump_keep_every_fact(node: AmdNode, is_dotted: bool, has_dead: bool) -> None:
    """Reading the tree of a node gives the node, and so does reading its dump."""
    odd = Oddities(is_dotted=is_dotted, has_dead_partitions=has_dead)
    with amd_tree.in_memory() as root:
        amd_tree.build(root, node, odd=odd)
        found = sysfs_inventory.read(root, root)
    assert found.gpus == node.gpus
    assert [w for w in found.warnings if "/dev/" not in w] == []
    whole = replace(node, warnings=found.warnings)
    document = {"schema": SCHEMA, amd_dump.KEY: amd_dump.section(whole)}
    text = inventory_file.text(document, "yaml").encode()
    assert amd_dump.of_document(inventory_file.parse(text, "x"), "x") == whole


CHANGES: list[Callable[[Path, bytes], object]] = [
    lambda path, _: path.unlink(),
    lambda path, noise: path.write_bytes(noise),
    lambda path, noise: path.write_bytes(path.read_bytes()[: len(noise)]),
    lambda path, noise: path.write_bytes(path.read_bytes() + noise),
]


@settings(deadline=None, max_examples=depth(12, 100))
@given(some.randoms(use_true_random=False), some.binary(max_size=64))
def test_any_content_of_files(random: object, noise: bytes) -> None:
    """Several files at a time are missing, cut, or something else: what is read fits the schema."""
    node = amd_profiles.finished(amd_profiles.mi300x(["05", "85"], ["SPX", "CPX"]), 5)
    with amd_tree.in_memory() as root:
        amd_tree.build(root, node, real_nodes=False)
        files = sorted(path for path in Path(root).rglob("*") if path.is_file())
        for path in random.sample(files, 60):  # type: ignore[attr-defined]
            if path.exists():
                random.choice(CHANGES)(path, noise)  # type: ignore[attr-defined]
        found = sysfs_inventory.read(root, root)
    document = {"schema": SCHEMA, amd_dump.KEY: amd_dump.section(found)}
    text = inventory_file.text(document, "json").encode()
    again = amd_dump.of_document(inventory_file.parse(text, "x"), "x")
    assert again == found
    assert {gpu.pci_address for gpu in found.gpus} <= {gpu.pci_address for gpu in node.gpus}
    known = {(one.id, one.render_minor) for _, one in node.devices()}
    assert {(one.id, one.render_minor) for _, one in found.devices()} <= known
