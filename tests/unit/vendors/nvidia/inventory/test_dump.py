# SPDX-License-Identifier: Apache-2.0
"""Dumps of nodes: written, read back, and refused if they are invalid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import gpuhook
from gpuhook.errors import GpuhookError
from gpuhook.vendors.inventory import inventory_file
from gpuhook.vendors.nvidia.inventory import dump, dump_file
from tests.simulated import profiles

SCHEMA = json.loads(
    Path(gpuhook.__file__).with_name("schemas").joinpath("inventory.json").read_text("utf-8")
)


def refused(document: object) -> GpuhookError:
    with pytest.raises(GpuhookError) as caught:
        dump_file.parse(json.dumps(document).encode(), "node.json")
    return caught.value


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the T4's dump with `value` at the JSON pointer `path`."""
    document = dump.as_dict(dump_file.load("t4"))
    place: Any = document
    *steps, last = path.strip("/").split("/")
    for step in steps:
        place = place[int(step)] if isinstance(place, list) else place[step]
    place[last] = value
    return document


@pytest.mark.parametrize("name", sorted(profiles.PROFILES))
def test_profiles_are_current(name: str) -> None:
    """The shipped profiles are those of their generator."""
    assert Path(inventory_file.PROFILES, name + ".yaml").read_text("utf-8") == profiles.document(
        name
    )
    assert dump_file.load(name) == profiles.PROFILES[name]()


def test_list_of_profiles() -> None:
    """Every profile is found by name."""
    assert inventory_file.profiles() == profiles.names()


@pytest.mark.parametrize("form", ["yaml", "json"])
@pytest.mark.parametrize("name", sorted(profiles.PROFILES))
def test_dump_is_read_back(name: str, form: str) -> None:
    """In both formats, and the dump fits the schema."""
    node = dump_file.load(name)
    text = dump_file.text(node, form)
    assert dump_file.parse(text.encode(), "x") == node
    jsonschema.Draft202012Validator(SCHEMA).validate(yaml.safe_load(text))


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_unknown_facts_are_written_out() -> None:
    """An unknown fact is 'unknown' in the dump; a working GPU has no 'lost'."""
    gpu = dump.as_dict(dump_file.load("t4"))["gpus"][0]
    assert gpu["numa_node"] == "unknown"
    assert "lost" not in gpu


def test_unknown_name_lists_the_profiles() -> None:
    """A name that is neither a file nor a profile."""
    with pytest.raises(GpuhookError) as caught:
        dump_file.load("t5")
    assert caught.value.code == "GH1500"
    assert "a100-mig, h100x8, lost-gpu, mi300x-cpx, mi300x8, mixed, radeon, t4" in caught.value.hint


def test_file_takes_precedence_over_a_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in the current directory with a profile's name is that file."""
    monkeypatch.chdir(tmp_path)
    Path("t4").write_text(dump_file.text(dump_file.load("h100x8"), "yaml"), encoding="utf-8")
    assert len(dump_file.load("t4").gpus) == 8


def test_broken_yaml_has_its_place() -> None:
    """Text that is not YAML is refused with file, line and column."""
    with pytest.raises(GpuhookError) as caught:
        dump_file.parse(b"schema: x\ngpus: [1\n", "node.yaml")
    assert caught.value.code == "GH1501"
    assert caught.value.message.startswith("node.yaml: line 3, column 1: ")


@pytest.mark.parametrize("content", [b"\x00", b"\xff\xfe\xff", b"a: !!python/object:os.system x"])
def test_invalid_bytes_and_tags_are_refused(content: bytes) -> None:
    """Bytes that YAML does not allow, and tags of Python."""
    with pytest.raises(GpuhookError) as caught:
        dump_file.parse(content, "node.yaml")
    assert caught.value.code == "GH1501"


@pytest.mark.parametrize("content", [b"", b"[]", b"just text", b"3"])
def test_document_must_be_a_mapping(content: bytes) -> None:
    with pytest.raises(GpuhookError) as caught:
        dump_file.parse(content, "node.yaml")
    assert caught.value.code == "GH1502"
    assert "expected a mapping" in caught.value.message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("/schema", "gpuhook/inventory/v9", "/schema: expected 'gpuhook/inventory/v1'"),
        ("/gpu", [], "/: unknown key 'gpu'; known are amd, dev_root"),
        ("/gpus/0/index", "first", "/gpus/0/index: expected a whole number, found 'first'"),
        ("/gpus/0/index", -1, "/gpus/0/index: expected a number with the minimum 0, found -1"),
        ("/gpus/0/minor", "x", "/gpus/0/minor: expected a whole number or 'unknown', found 'x'"),
        ("/gpus/0/minor", [], "/gpus/0/minor: expected a whole number or a text, found []"),
        ("/gpus/0/coherent", 1, "/gpus/0/coherent: expected true or false or a text, found 1"),
        ("/gpus/0/mig_mode", "on", "/gpus/0/mig_mode: expected one of enabled, disabled"),
        ("/gpus/0/instances", [{"index": 0}], "/gpus/0/instances/0: 'uuid' is missing"),
        ("/gpus/0/vram", 1, "/gpus/0: unknown key 'vram'"),
        ("/gpus", "none", "/gpus: expected a list, found 'none'"),
        ("/driver", {"version": "1.2"}, "/driver: 'module_version' is missing"),
        ("/driver/version", "new", "expected a version like '580.95.05', or 'unknown'"),
        ("/files/0/kind", "driver", "/files/0/kind: expected one of library"),
        ("/files/0/container_path", "lib", "expected an absolute path, found 'lib'"),
        ("/device_nodes/0/mode", 438, "/device_nodes/0/mode: expected a text, found 438"),
    ],
)
def test_wrong_values_are_refused(path: str, value: object, message: str) -> None:
    """With file, place and the expected value."""
    error = refused(changed(path, value))
    assert error.code == "GH1502"
    assert error.message.startswith("node.json: /")
    assert message in error.message


@pytest.mark.parametrize("key", ["index", "uuid", "minor", "pci_bus_id"])
def test_duplicate_gpus_are_refused(key: str) -> None:
    """Two GPUs with the same index, UUID, minor or bus id."""
    document = dump.as_dict(dump_file.load("h100x8"))
    document["gpus"][4][key] = document["gpus"][1][key]
    error = refused(document)
    assert error.code == "GH1502"
    assert f"/gpus/4/{key}" in error.message
    assert "/gpus/1" in error.message


@pytest.mark.parametrize(("key", "place"), [("index", "0/instances/5"), ("uuid", "1/instances/2")])
def test_duplicate_instances_are_refused(key: str, place: str) -> None:
    """Two MIG instances of one GPU with the same index, or any two with one UUID."""
    document = dump.as_dict(dump_file.load("a100-mig"))
    gpu, number = map(int, place.split("/instances/"))
    document["gpus"][gpu]["instances"][number][key] = document["gpus"][0]["instances"][1][key]
    if key == "index":
        document["gpus"][1]["instances"][0]["index"] = (
            1  # an instance of another GPU: this is allowed
        )
        document["gpus"][1]["instances"][1]["index"] = 7
    error = refused(document)
    assert error.code == "GH1502"
    assert f"/gpus/{place}/{key}" in error.message
    assert "/gpus/0/instances/1 already" in error.message


def test_only_divided_gpus_have_instances() -> None:
    """A GPU without MIG instances lacks the key; a usable instance has no trouble."""
    divided, _, undivided = dump.as_dict(dump_file.load("a100-mig"))["gpus"]
    assert "instances" not in undivided
    assert len(divided["instances"]) == 7
    assert "trouble" not in divided["instances"][0]


def test_several_gpus_may_be_unknown() -> None:
    """Two GPUs without known facts are not duplicates."""
    document = dump.as_dict(dump_file.load("t4"))
    document["gpus"] = [{"index": 0}, {"index": 1, "uuid": "unknown", "lost": "gone"}]
    node = dump_file.parse(json.dumps(document).encode(), "x")
    assert [gpu.uuid for gpu in node.gpus] == [None, None]
