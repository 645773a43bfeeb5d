# SPDX-License-Identifier: Apache-2.0
"""Hostile documents as arguments of commands: an error with a code, no crash, bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from gpuhook.host import documents

NESTED = ["[", "{a: ", "- ", '{"a":']
REVERSED = "H100 \u202egnp.exe\u202c"
COMMANDS = [
    ("map", "--inventory"),
    ("labels", "--inventory"),
    ("generate-cdi", "--output-file", "-", "--inventory"),
    ("inventory", "--inventory"),
    ("explain", "--env", "NVIDIA_VISIBLE_DEVICES=all", "--inventory"),
    ("device-plugin", "--validate", "CONFIG", "--inventory"),
]


def gpuhook(
    *arguments: str, stdin: bytes = b"", limits: Sequence[str] = ()
) -> subprocess.CompletedProcess[bytes]:
    command = [*limits, sys.executable, "-m", "gpuhook", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=300)


@pytest.mark.parametrize("shape", NESTED)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_deeply_nested_inventory_is_refused(tmp_path: Path, command: list[str], shape: str) -> None:
    """Deep nesting overflows the stack of libyaml's composer."""
    deep = tmp_path / "deep.yaml"
    deep.write_text(shape * 100_000, encoding="utf-8")
    config = tmp_path / "config.yaml"
    config.write_text("version: v1\n", encoding="utf-8")
    done = gpuhook(*[str(config) if word == "CONFIG" else word for word in command], str(deep))
    assert done.returncode in (1, 2)
    assert b"GH1501" in done.stderr
    assert b"nested too deeply" in done.stderr


def test_inventory_with_exponential_aliases_is_refused(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.yaml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    bomb.write_text("\n".join(lines), encoding="utf-8")
    done = gpuhook("inventory", "--inventory", str(bomb))
    assert b"GH1501" in done.stderr
    assert b"expands to more than" in done.stderr


LARGE = b'{"ociVersion": "1.0.2", "process": {"env": ["A=' + b"x" * documents.LARGEST + b'"]}}'
MANY = b'{"process": {"env": [' + b",".join([b'{"a":{}}'] * (7 << 20)) + b"]}}"
KINDS = ["config.json", "bundle", "manifest", "standard input", "inventory", "spec", "spec file"]


@pytest.mark.parametrize("kind", KINDS)
def test_large_document_is_refused_before_parsing(tmp_path: Path, kind: str) -> None:
    """64 MB of JSON do not fit into the address space as a parsed document."""
    large = tmp_path / ("config.json" if kind != "manifest" else "pods.yaml")
    large.write_bytes(MANY)
    arguments = {
        "config.json": ("explain", str(large)),
        "bundle": ("explain", str(tmp_path)),
        "manifest": ("explain", str(large)),
        "standard input": ("explain", "-"),
        "inventory": ("inventory", "--inventory", str(large)),
        "spec file": ("cdi", "validate", str(large)),
        "spec": ("cdi", "transform", "root", "--from", "/a", "--to", "/b", "--input", "-"),
    }[kind]
    stdin = MANY if kind in ("standard input", "spec") else b""
    done = gpuhook(*arguments, stdin=stdin, limits=("prlimit", f"--as={400 << 20}"))
    assert done.returncode == 1, done.stderr
    assert b"GH1316" in done.stderr
    assert b"larger than 8 MiB" in done.stderr


@pytest.mark.parametrize("line", ["- a\n", "- {a: b}\n", "- []\n"])
@pytest.mark.parametrize("command", [("cdi", "validate"), ("inventory", "--inventory")])
def test_yaml_with_many_values_is_refused_before_composing(
    tmp_path: Path, command: tuple[str, ...], line: str
) -> None:
    """The nodes of 8 MB of short values do not fit into the address space."""
    many = tmp_path / "many.yaml"
    many.write_text(line * (8_000_000 // len(line)), encoding="utf-8")
    done = gpuhook(*command, str(many), limits=("prlimit", f"--as={400 << 20}"))
    assert done.returncode == 1
    assert b"it expands to more than" in done.stderr


def test_document_of_the_maximum_size_is_read(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(LARGE[: documents.LARGEST - 4] + b'"]}}')
    assert config.stat().st_size == documents.LARGEST
    assert gpuhook("explain", "-o", "json", str(config)).returncode == 0


def test_endless_inventory_is_refused() -> None:
    command = ["prlimit", f"--as={400 << 20}", sys.executable, "-m", "gpuhook", "inventory"]
    command += ["--inventory", "/dev/stdin"]
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        done = subprocess.run(command, stdin=endless.stdout, capture_output=True, check=False)
        endless.kill()
    assert b"GH1316" in done.stderr
    assert b"GH1310" in gpuhook("inventory", "--inventory", "/dev/zero").stderr


@pytest.fixture
def inventory_with_control_characters(tmp_path: Path) -> Path:
    """Return an inventory with control characters of a terminal in the GPU's name."""
    shown = gpuhook("inventory", "--inventory", "t4", "-o", "json").stdout
    document = json.loads(shown)
    document["gpus"][0]["name"] = REVERSED
    place = tmp_path / "node.json"
    place.write_text(json.dumps(document), encoding="utf-8")
    return place


def test_yaml_output_has_no_control_characters(inventory_with_control_characters: Path) -> None:
    done = gpuhook("inventory", "-o", "yaml", "--inventory", str(inventory_with_control_characters))
    text = done.stdout.decode()
    assert yaml.safe_load(text)["gpus"][0]["name"] == REVERSED
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_spec_output_has_no_control_characters(form: str, tmp_path: Path) -> None:
    node = {"path": f"/dev/{REVERSED}", "type": "c", "major": 1, "minor": 3}
    device = {"name": "0", "containerEdits": {"deviceNodes": [node]}}
    spec = {"cdiVersion": "0.6.0", "kind": "a.com/b", "devices": [device]}
    stdin = json.dumps(spec).encode()
    options = ("cdi", "transform", "root", "--from", "/a", "--to", "/b", "--format", form)
    done = gpuhook(*options, "--input", "-", stdin=stdin)
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    found = yaml.safe_load(text)["devices"][0]["containerEdits"]["deviceNodes"]
    assert found == [node]
    assert text.replace("\n", "").isprintable()
