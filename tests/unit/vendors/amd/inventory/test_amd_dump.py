# SPDX-License-Identifier: Apache-2.0
"""The key `amd` of inventories: profiles, both forms, and documents that cannot be a node's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuhook.errors import GpuhookError
from gpuhook.vendors.amd.inventory import amd_dump
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.inventory import inventory_file
from gpuhook.vendors.inventory.inventory_document import SCHEMA
from gpuhook.vendors.nvidia.inventory import dump_file
from tests.simulated import amd_machines, amd_profiles, profiles

MADE = amd_profiles.PROFILES | amd_machines.MACHINES


def document_of(node: AmdNode) -> dict[str, Any]:
    return {"schema": SCHEMA, amd_dump.KEY: amd_dump.section(node)}


@pytest.mark.parametrize("name", sorted(amd_profiles.PROFILES))
def test_profile_is_up_to_date(name: str) -> None:
    """`python -m tests.simulated.profiles` writes the files."""
    assert Path(inventory_file.path(name)).read_text("utf-8") == profiles.document(name)
    assert amd_dump.load(name) == amd_profiles.PROFILES[name]()


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("name", sorted(MADE))
def test_dump_and_back(name: str, form: str) -> None:
    node = MADE[name]()
    text = inventory_file.text(document_of(node), form)
    assert amd_dump.of_document(inventory_file.parse(text.encode(), "x"), "x") == node


def test_devices_are_on_one_line() -> None:
    text = inventory_file.text(document_of(amd_profiles.mi300x8()), "yaml")
    assert sum(line.lstrip().startswith("- {index: ") for line in text.splitlines()) == 8


@pytest.mark.parametrize("name", ["mi300x8", "mi300x-cpx", "radeon"])
def test_node_without_nvidia(name: str) -> None:
    """The callers for NVIDIA get a node without a driver and without GPUs."""
    node = dump_file.load(name)
    assert (node.gpus, node.device_nodes, node.files) == ((), (), ())
    assert (node.driver.version, node.driver.module_version) == (None, None)


def test_mixed_node() -> None:
    """Each vendor's part is as it would be alone."""
    assert dump_file.load("mixed") == dump_file.load("t4")
    assert amd_dump.load("mixed") == amd_profiles.mixed_amd()


def test_node_without_amd() -> None:
    assert amd_dump.load("t4") == AmdNode()


def test_neither_part() -> None:
    """A document has at least one vendor's part, and a part of NVIDIA is whole."""
    for document in ({"schema": SCHEMA}, {"schema": SCHEMA, "amd": {}, "driver": {}}):
        with pytest.raises(GpuhookError) as caught:
            inventory_file.parse(json.dumps(document).encode(), "node.yaml")
        assert caught.value.code == "GH1502"
    assert inventory_file.parse(b'{"schema": "gpuhook/inventory/v1", "amd": {}}', "x")


GPU = "/amd/gpus/1"
DEVICE = f"{GPU}/devices/0"


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (f"{GPU}/pci_address", "05:00.0", f"{GPU}/pci_address: expected something like"),
        (f"{GPU}/unique_id", "0x12", f"{GPU}/unique_id: expected something like"),
        (f"{GPU}/vram_bytes", -1, f"{GPU}/vram_bytes: expected a number with the minimum 0"),
        (f"{GPU}/vram_bytes", "big", f"{GPU}/vram_bytes: expected a whole number"),
        (f"{GPU}/name", "a\nb", f"{GPU}/name: expected a text on one line"),
        (f"{GPU}/compute_mode", "../..", f"{GPU}/compute_mode: expected something like"),
        (f"{GPU}/uuid", "GPU-1", f"{GPU}: unknown key 'uuid'"),
        (f"{DEVICE}/id", "../../etc", f"{DEVICE}/id: expected something like"),
        (f"{DEVICE}/render_minor", None, f"{DEVICE}/render_minor: expected a whole number"),
        (f"{DEVICE}/links/0/type", "nvlink", f"{DEVICE}/links/0/type: expected one of xgmi, "),
        ("/amd/device_nodes/0/mode", "rw", "/amd/device_nodes/0/mode: expected something like"),
        (f"{GPU}/index", 0, f"{GPU}/index: 0 is the index of /amd/gpus/0 already"),
        (f"{DEVICE}/index", 0, f"{DEVICE}/index: 0 is the index of /amd/gpus/0/devices/0 already"),
        (f"{DEVICE}/render_minor", 128, f"{DEVICE}/render_minor: 128 is the render_minor of"),
        (f"{DEVICE}/id", "0000:05:00.0", f"{DEVICE}/id: '0000:05:00.0' is the id of"),
    ],
)  # fmt: skip
def test_wrong_values(tmp_path: Path, place: str, value: object, reason: str) -> None:
    """The fault names the file, the place and what is expected there."""
    document = json.loads(json.dumps(document_of(amd_profiles.mi300x8())))
    *parents, last = place[1:].split("/")
    target: Any = document
    for key in parents:
        target = target[int(key)] if key.isdigit() else target[key]
    target[last] = value
    file = tmp_path / "node.json"
    file.write_text(json.dumps(document), "utf-8")
    with pytest.raises(GpuhookError) as caught:
        amd_dump.load(str(file))
    assert caught.value.code == "GH1502"
    assert f"{file}: {reason}" in str(caught.value)
