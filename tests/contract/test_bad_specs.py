# SPDX-License-Identifier: Apache-2.0
"""Creates with invalid and very large CDI specs."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi import spec_file as spec_files
from gpuhook.cdi.hot import compiled_spec
from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation, asks
from tests.contract.runtimes import Result, run_command

COUNT = 100_000
MEMORY = 512 << 20  # bytes of address space, including the interpreter
JOBS = "/containerEdits/hooks/0/args"


@pytest.fixture
def bundle(bundle_of: Bundles) -> Bundle:
    """Return a bundle that requests GPU 0."""
    return bundle_of("distroless", ["/probe"], asks("0"))


def create(made: Installation, bundle: Bundle, memory: int = MEMORY) -> Result:
    """Call `gpuhook-runtime create` with this limit of address space."""
    command = ["prlimit", f"--as={memory}", made.runtime, "create", "--bundle", str(bundle.path)]
    env = {**os.environ, **made.on("/bin/true")}
    return run_command([*command, "gpuhook-test-large"], env)


def test_large_spec_is_compiled_once_in_bounded_memory(apart: Installation, bundle: Bundle) -> None:
    """A spec of 100,000 devices is compiled once; refresh ignores it, `cdi list` lists it."""
    large = apart.specs / "large.json"
    line = '{"name": "d%d", "containerEdits": {"env": ["D=%d"]}}'
    text = ",\n".join(line % (number, number) for number in range(COUNT))
    head = '{"cdiVersion": "0.5.0", "kind": "nvidia.com/other", "devices": [\n'
    large.write_text(head + text + "]}", encoding="utf-8")
    config = bundle.config()
    config["process"]["env"] = ["PATH=/"]
    config["annotations"] = {"cdi.k8s.io/x": f"nvidia.com/gpu=0,nvidia.com/other=d{COUNT - 1}"}
    compiled = apart.state / "compiled" / Path(compiled_spec.compiled_path(str(large))).name
    identities = []
    for _ in range(2):
        bundle.write(config)
        result = create(apart, bundle)
        assert result.rc == 0, result.stderr
        after = bundle.config()
        assert f"D={COUNT - 1}" in after["process"]["env"]
        assert apart.device(0) in [node["path"] for node in after["linux"]["devices"]]
        identities.append((compiled.stat().st_ino, compiled.stat().st_mtime_ns))
    assert identities[0] == identities[1]
    before = large.stat()
    result = apart.gpuhook("refresh", "-o", "json")
    assert result.rc == 0, result.stderr
    assert [one["path"] for one in json.loads(result.stdout)["specs"]] == [str(apart.spec)]
    assert large.stat() == before
    result = apart.gpuhook("cdi", "list", "-o", "json")
    assert result.rc == 0, result.stderr
    assert f"nvidia.com/other=d{COUNT - 1}" in result.stdout


def test_damaged_node_record_selects_no_other_gpu(apart: Installation, bundle: Bundle) -> None:
    """With a damaged node.json, a PCI bus id selects its own GPU or none."""
    config = bundle.config()
    config["process"]["env"] = asks(apart.gpu(1).pci_bus_id or "")
    apart.refuse_stale()
    (record,) = (apart.state / "generated").iterdir()
    chance = random.Random(5)
    for path in [apart.state / "node.json", record] * 6:
        data = path.read_bytes()
        place, cut = chance.randrange(len(data)), chance.random() < 0.5
        changed = b"" if cut else bytes([data[place] ^ 1]) + data[place + 1 :]
        path.write_bytes(data[:place] + changed)
        bundle.write(config)
        result = apart.edit(bundle)
        path.write_bytes(data)
        assert result.rc == 0 or "error GH1102" in result.stderr, result
        paths = [node["path"] for node in bundle.config()["linux"].get("devices", [])]
        gpus = [name for name in paths if name[len("/dev/nvidia") :].isdigit()]
        assert gpus == ([apart.device(1)] if result.rc == 0 else [])


def append_at(document: Any, pointer: str, text: str) -> None:
    """Append `text` to the value at a JSON pointer."""
    *path, last = pointer.strip("/").split("/")
    for step in path:
        document = document[int(step)] if isinstance(document, list) else document[step]
    key = int(last) if isinstance(document, list) else last
    document[key] += text


def test_nul_is_refused_with_its_place(apart: Installation, bundle: Bundle) -> None:
    """A NUL in a JSON spec is refused with its JSON pointer."""
    document = spec_files.read(str(apart.spec))
    apart.spec.unlink()
    args = document["containerEdits"]["hooks"][0]["args"]
    options = ("--fingerprint", "--libcuda", "--host-root", "--library", "--link")
    edits = "/devices/0/containerEdits/deviceNodes/0"
    pointers = [f"{JOBS}/{args.index(option) + 1}" for option in options]
    pointers += [f"{edits}/path", f"{edits}/hostPath", "/containerEdits/env/0"]
    pointers += ["/containerEdits/mounts/0/hostPath", "/containerEdits/mounts/0/containerPath"]
    before = bundle.file.read_bytes()
    apart.refuse_stale()
    for pointer in pointers:
        spoiled = json.loads(json.dumps(document))
        append_at(spoiled, pointer, "\0")
        (apart.specs / "nvidia.json").write_text(json.dumps(spoiled), encoding="utf-8")
        result = apart.edit(bundle)
        assert result.rc == 1
        assert "error GH1104" in result.stderr
        assert f"{pointer}: it has a NUL or half a character" in result.stderr
        assert bundle.file.read_bytes() == before


@pytest.mark.parametrize("text", [b"\xff", rb"\ud800"])
def test_text_that_engines_refuse_is_refused(
    text: bytes, apart: Installation, bundle: Bundle
) -> None:
    """Engines read a JSON spec as YAML, which has no other bytes than UTF-8 and no surrogates."""
    document = json.dumps(spec_files.read(str(apart.spec))).encode()
    apart.spec.unlink()
    document = document.replace(b'"/usr/bin/nvidia-smi"', b'"/usr/bin/nvidia-' + text + b'"')
    (apart.specs / "nvidia.json").write_bytes(document)
    apart.refuse_stale()
    result = apart.edit(bundle)
    assert result.rc == 1
    assert "error GH1104" in result.stderr
