# SPDX-License-Identifier: Apache-2.0
"""Specs larger than any node's: their cost is proportional to their size."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuhook.cdi import spec_file as spec_files
from gpuhook.cdi.hot import compiled_spec, registry
from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot.vocabulary import capability_node
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu, MigInstance, Node
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests import depth

COUNT = 100_000
LIMIT = 2 << 30  # of address space: for JSON and YAML alike
# Run in a separate process with limited memory and the test's deadline.
ALL_OF_IT = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]),) * 2)
resource.setrlimit(resource.RLIMIT_CPU, (240, 240))
from gpuhook.cdi import spec_file
from gpuhook.cdi.hot import compile, registry
from gpuhook.request import resolve
path, count = sys.argv[1], int(sys.argv[3])
compiled = compile.compile_with(spec_file.parser(path), path, os.stat(path))
assert compiled.error is None, compiled.error.message
found = registry.load([os.path.dirname(path)], None)
last = f"a.com/b=d{count - 1}"
assert found.device(last)[1]["env"] == [f"D={count - 1}"]
class Plain:
    kind, apart = "a.com/b", ()
    def registry_for(self, names): return found
    def filter_edits(self, compiled, edits, capabilities): return edits
grant = resolve.resolve_names([last], frozenset(), Plain())
assert grant.edits["env"] == ["A=1", f"D={count - 1}"]
assert len(found.names("a.com/b")) == count
assert [found.device(f"a.com/b={name}") for name in found.names("a.com/b")][0][1]
print("done")
"""


@pytest.mark.parametrize("fmt", depth.cases(["json", "yaml"], ["json"]))
def test_hundred_thousand_devices(fmt: str, tmp_path: Path) -> None:
    """They are read, compiled and resolved in bounded memory, also one by one."""
    path = tmp_path / f"cdi/large.{fmt}"
    path.parent.mkdir()
    line = '{"name": "d%d", "containerEdits": {"env": ["D=%d"]}}'
    devices = [("" if fmt == "json" else "- ") + line % (n, n) for n in range(COUNT)]
    head = '{"cdiVersion": "0.5.0", "kind": "a.com/b", "containerEdits": {"env": ["A=1"]}'
    if fmt == "json":
        text = head + ', "devices": [\n' + ",\n".join(devices) + "]}"
    else:
        text = "cdiVersion: 0.5.0\nkind: a.com/b\ncontainerEdits: {env: [A=1]}\ndevices:\n"
        text += "\n".join(devices) + "\n"
    path.write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", ALL_OF_IT, str(path), str(LIMIT), str(COUNT)],
        capture_output=True,
        text=True,
        env={**os.environ, "GPUHOOK_STATE_DIR": str(tmp_path / "state")},
        check=False,
    )
    assert done.stdout == "done\n", done.stderr


def test_long_text_without_aliases_is_accepted() -> None:
    """The limit is for values that aliases multiply, not for written ones."""
    node = "{path: /dev/nvidia0, hostPath: /a/dev/nvidia0, fileMode: 438, permissions: rw}"
    nodes = ", ".join([node] * 60)
    devices = "".join(
        f"- {{name: d{n}, containerEdits: {{deviceNodes: [{nodes}]}}}}\n" for n in range(40)
    )
    text = f"cdiVersion: 0.5.0\nkind: a.com/b\ndevices:\n{devices}".encode()
    assert len(spec_files.parse_yaml(text, "x")["devices"]) == 40
    bomb = b"a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for name, before in zip(b"bcdefg", b"abcdef", strict=True):
        bomb += b"%c: &%c [%s]\n" % (name, name, b", ".join([b"*%c" % before] * 10))
    with pytest.raises(GpuhookError, match="too many"):
        spec_files.parse_yaml(bomb, "x")


def test_lookup_of_one_and_of_all_names_agree() -> None:
    """A device is found in the same way before and after all names were read."""
    devices = [{"name": name, "containerEdits": {"env": [f"A={name}"]}} for name in ("a", "b")]
    spec = {"cdiVersion": "0.5.0", "kind": "a.com/b", "devices": devices}
    held = compiled_spec.of_spec("x", spec)  # type: ignore[arg-type]
    before = [held.device(name) for name in ("a", "b", "c", "")]
    assert held.names() == ["a", "b"]
    assert [held.device(name) for name in ("a", "b", "c", "")] == before
    assert before == [{"env": ["A=a"]}, {"env": ["A=b"]}, None, None]


def divided(count: int, instances: int) -> Node:
    """Return a node with `count` GPUs in MIG mode, each with this number of instances."""
    whole = dump_file.load("a100-mig")
    control = [node for node in whole.device_nodes if "nvidia-cap" not in node.path]
    control = [node for node in control if not node.path[len("/dev/nvidia") :].isdigit()]
    gpus, nodes = [], []
    for index in range(count):
        mine = tuple(_instance(index, number) for number in range(instances))
        uuid = f"GPU-{index:08x}-0000-4000-8000-000000000000"
        gpus.append(Gpu(index=index, uuid=uuid, minor=index, mig_mode="enabled", instances=mine))
        minors = [
            minor for one in mine for minor in (one.gpu_instance_minor, one.compute_instance_minor)
        ]
        paths = [f"/dev/nvidia{index}", *(capability_node(minor or 0) for minor in minors)]
        nodes += [DeviceNode(path, path, 195, 0) for path in paths]
    return replace(whole, gpus=tuple(gpus), device_nodes=(*control, *nodes))


def _instance(gpu: int, number: int) -> MigInstance:
    return MigInstance(
        index=number,
        uuid=f"MIG-{gpu:08x}-{number:04x}-4000-8000-000000000000",
        gpu_instance=7 + number,
        compute_instance=0,
        gpu_instance_minor=gpu * 135 + number * 9 + 3,
        compute_instance_minor=gpu * 135 + number * 9 + 4,
    )


def test_sixteen_gpus_with_seven_instances(tmp_path: Path) -> None:
    """Each instance has its three nodes and no other instance's."""
    strategies = ("index", "uuid", "type-index")
    found = describe(divided(16, 7), Choices(strategies=strategies)).spec
    by_name = {device["name"]: device["containerEdits"] for device in found["devices"]}
    assert len(by_name) == 16 * 7 * 3 + 1
    paths = {name: {n["path"] for n in edits["deviceNodes"]} for name, edits in by_name.items()}
    mine = {"/dev/nvidia15", "/dev/nvidia-caps/nvidia-cap2082", "/dev/nvidia-caps/nvidia-cap2083"}
    assert paths["15:6"] == paths["mig15:6"] == mine
    assert len(paths["all"]) == 16 + 16 * 7 * 2
    file = tmp_path / "nvidia.json"
    spec_files.write(found, str(file), "json")
    loaded = registry.load([str(tmp_path)], lambda *_: None)
    assert loaded.device("nvidia.com/gpu=15:6")[1] == by_name["15:6"]
