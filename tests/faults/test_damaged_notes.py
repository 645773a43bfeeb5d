# SPDX-License-Identifier: Apache-2.0
"""Damaged records of generate-cdi below the state directory: truncated, or with a changed byte."""

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
def spec_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_hook: str) -> Here:
    """Return a node whose spec was generated with limiting options."""
    generated = Here(tmp_path)
    generated.generate("--device-id", "1", "--no-all-device", "--device-name-strategy", "index")
    for name, value in generated.env.items():
        monkeypatch.setenv(name, value)
    return generated


def damaged(data: bytes, step: int) -> Iterator[bytes]:
    """Yield `data` truncated, and with a changed bit, letter case and byte, at each step."""
    for at in range(0, len(data), step):
        yield data[:at]
        for value in (data[at] ^ 1, data[at] ^ 0x20, 0xFF):
            yield data[:at] + bytes([value]) + data[at + 1 :]


def record_of(spec_node: Here) -> Path:
    """Return the only record of a generated spec."""
    (record,) = (spec_node.state / "generated").iterdir()
    return record


def test_damaged_record_is_ignored(spec_node: Here) -> None:
    """A damaged record would generate a spec with other options."""
    record = record_of(spec_node)
    data, whole = record.read_bytes(), spec_records.all_of_node()
    assert len(whole) == 1
    kept = 0
    for text in damaged(data, 5):
        record.write_bytes(text)
        found = spec_records.all_of_node()
        assert found in ([], whole)
        kept += len(found)
    assert kept < 8  # without the newline, or with a hexadecimal digit in upper case


def test_refresh_with_a_damaged_record_keeps_the_spec(spec_node: Here) -> None:
    """Its earlier limits are unknown."""
    record, before = record_of(spec_node), spec_node.spec.read_bytes()
    data = record.read_bytes()
    spec_node.reboot()
    for text in random.Random(7).sample([*damaged(data[:-1], 1)], 12):
        record.write_bytes(text)
        done = spec_node.call("refresh", "-o", "json")
        assert "GH159" not in done.output
        (one,) = json.loads(done.stdout)["specs"]
        assert (one["state"], one["error"]["code"]) == ("failed", "GH1527")
        assert spec_node.spec.read_bytes() == before
    record.write_bytes(data)
    assert spec_node.states() == {"nvidia.yaml": "written"}
    assert spec_node.names() == ["1"]


def test_damaged_node_json_has_values_of_the_right_type(spec_node: Here) -> None:
    """`refresh` works without it."""
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
        if number % 4 == 0:  # truncated
            assert node_json.alias("0000:1b:00.0") is None
        if number % 100 == 0:
            assert spec_node.states() == {"nvidia.yaml": "unchanged"}
