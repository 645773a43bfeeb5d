# SPDX-License-Identifier: Apache-2.0
"""Forged bundles: refused with a code, or read as far as they are valid."""

from __future__ import annotations

import gzip
import io
import json
import os
import random
import tarfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from gpuhook.cli import main

TREE: dict[str, Any] = {
    "schema": "gpuhook/bundle-tree/v1", "absent": [], "names": {}, "status": {}, "lstat": {},
    "real": {}, "errors": [],
}  # fmt: skip
READINGS = ("units", "processes", "containers", "programs", "containerd", "gpuhook")
WRONG: tuple[Any, ...] = (
    1, True, "x", [[]], [None], [{}], {"a": 1}, {"containers": [{}], "looked_at": 1, "trouble": []},
    [{"name": "containerd", "argv": [None], "started": "x", "exe": 5, "pid": True}],
)  # fmt: skip


def _bundle(path: Path, readings: Any = None, **files: bytes) -> str:
    manifest = {"schema": "gpuhook/support-bundle/v1", "driver_root": "/", "dev_root": "/"}
    members = {
        "manifest.json": json.dumps(manifest).encode(),
        "tree.json": json.dumps(TREE).encode(),
        "readings.json": json.dumps(readings or {}).encode(),
        **files,
    }
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo("gpuhook-bundle/" + name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return str(path)


def _doctor(path: str) -> Result:
    return CliRunner().invoke(main, ["doctor", "--from", path], prog_name="gpuhook")


def _is_handled(done: Result) -> bool:
    """Return whether a run ended with results, or with a fault of the bundle."""
    if done.exit_code not in (0, 1) or not isinstance(done.exception, (SystemExit, type(None))):
        return False
    return "GH1491" not in done.output and not any(c < " " and c != "\n" for c in done.output)


@pytest.mark.parametrize("name", READINGS)
@pytest.mark.parametrize("document", WRONG, ids=lambda one: str(one)[:24])
def test_readings_of_another_form_are_refused(tmp_path: Path, name: str, document: Any) -> None:
    texts = dict.fromkeys(("trouble", "code", "hint"), "")
    path = _bundle(tmp_path / "b", {name: {"document": document, **texts}})
    done = _doctor(path)
    assert done.exit_code == 1
    assert "GH1906" in done.output


@pytest.mark.parametrize("kind", [b"L", b"x"])
def test_endless_headers_are_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("long")
    member.type, content = kind, b"12 path=abc\n"
    member.size = len(content)
    block = member.tobuf(tarfile.GNU_FORMAT) + content.ljust(512, b"\0")
    (tmp_path / "b").write_bytes(gzip.compress(block * 5000))
    done = _doctor(str(tmp_path / "b"))
    assert done.exit_code == 1
    assert "GH1906" in done.output


def test_fifo_is_not_a_bundle(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert "GH1906" in _doctor(str(tmp_path / "fifo")).output


def test_broken_archives_are_a_fault(tmp_path: Path) -> None:
    whole = gzip.decompress(Path(_bundle(tmp_path / "b")).read_bytes())
    chance = random.Random(7)
    for _ in range(40):
        content = bytearray(whole)
        for _ in range(chance.randrange(1, 8)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        (tmp_path / "broken").write_bytes(gzip.compress(bytes(content), 1))
        assert _is_handled(_doctor(str(tmp_path / "broken")))
