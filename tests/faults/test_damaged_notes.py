# SPDX-License-Identifier: Apache-2.0
"""What generate-cdi has noted below the state directory, damaged: cut short, or a byte changed."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.hot import node_json
from gpuhook.vendors.nvidia.spec import spec_records
from tests.unit.cli.test_refresh import Here

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="device nodes are made by root")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Here:
    """Give a node whose spec was limited by the words that made it."""
    made = Here(tmp_path)
    made.generate("--device-id", "1", "--no-all-device", "--device-name-strategy", "index")
    for name, value in made.env.items():
        monkeypatch.setenv(name, value)
    return made


def damaged(data: bytes, step: int) -> Iterator[bytes]:
    """Yield `data` cut, and with a bit, a letter's case and a whole byte changed, at each step."""
    for at in range(0, len(data), step):
        yield data[:at]
        for value in (data[at] ^ 1, data[at] ^ 0x20, 0xFF):
            yield data[:at] + bytes([value]) + data[at + 1 :]


def note_of(here: Here) -> Path:
    """Return the one record of how a spec was made."""
    (note,) = (here.state / "generated").iterdir()
    return note


def test_a_record_is_whole_or_none(here: Here) -> None:
    """By other words than it was made with no spec is ever written."""
    note = note_of(here)
    data, whole = note.read_bytes(), spec_records.all_of_node()
    assert len(whole) == 1
    kept = 0
    for text in damaged(data, 5):
        note.write_bytes(text)
        found = spec_records.all_of_node()
        assert found in ([], whole)
        kept += len(found)
    assert kept < 8  # without the line's end, or with a hexadecimal digit in capitals


def test_refresh_by_damaged_records(here: Here) -> None:
    """A spec with a useless record is left, as its earlier limits are unknown."""
    note, before = note_of(here), here.spec.read_bytes()
    data = note.read_bytes()
    here.reboot()
    for text in random.Random(7).sample([*damaged(data[:-1], 1)], 12):
        note.write_bytes(text)
        done = here.call("refresh", "-o", "json")
        assert "GH159" not in done.output
        (one,) = json.loads(done.stdout)["specs"]
        assert (one["state"], one["error"]["code"]) == ("failed", "GH1527")
        assert here.spec.read_bytes() == before
    note.write_bytes(data)
    assert here.states() == {"nvidia.yaml": "written"}
    assert here.names() == ["1"]


def test_node_json(here: Here) -> None:
    """It tells something or nothing, each of it of the right type; refresh does without it."""
    path = Path(node_json.path())
    data = path.read_bytes()
    for number, text in enumerate(damaged(data, 199)):
        path.write_bytes(text)
        assert isinstance(node_json.alias("0000:1b:00.0"), (str, type(None)))
        assert all(isinstance(uuid, str) for uuid in node_json.uuids().values())
        assert all(isinstance(size, int) for size in node_json.memory().values())
        assert isinstance(node_json.nvml(), str)
        assert len(node_json.versions_and_kinds()) == 4
        assert all(isinstance(turn, dict) for turn in node_json.turns().values())
        if number % 4 == 0:  # cut short
            assert node_json.alias("0000:1b:00.0") is None
        if number % 100 == 0:
            assert here.states() == {"nvidia.yaml": "unchanged"}
