# SPDX-License-Identifier: Apache-2.0
"""ps, map and inspect on real containers of a simulated node with AMD partitions."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import pytest

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation
from tests.contract.live import WAIT, Live, started
from tests.contract.runtimes import run_gpuhook
from tests.simulated import amd_tree, amd_users
from tests.simulated.amd_tree import AmdTree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
KFD, RENDER = ("/dev/kfd", 238, 0), ("/dev/dri/renderD131", 226, 131)
OTHER, INTEL = ("/dev/dri/renderD132", 226, 132), ("/dev/dri/renderD250", 10, 229)


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    built = amd_tree.build(tmp_path / "amd", "mi300x-cpx")
    amd_users.host_processes(built.root)
    return built


@pytest.fixture
def node(apart: Installation, tree: AmdTree) -> Installation:
    """Return an installation on the AMD node, without the record of the other node's GPUs."""
    (apart.state / "node.json").unlink()
    return replace(apart, node=replace(apart.node, host_root=str(tree.root)))


def given(made: Bundle, *nodes: tuple[str, int, int]) -> Bundle:
    """Give a container device nodes and the rules that allow them."""
    config = made.config()
    linux = config["linux"]
    for path, major, minor in nodes:
        linux.setdefault("devices", []).append(
            {"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o660}
        )
        rule = {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rw"}
        linux.setdefault("resources", {}).setdefault("devices", []).append(rule)
    made.write(config)
    return made


def on_node(live: Live, *words: str) -> str:
    """Return the output of a gpuhook command that reads the node."""
    own = [*words, *live.roots, f"--driver-root={live.bundle.path}"]
    done = run_gpuhook(live.launcher, own, live.env, live.container.around)
    assert done.rc == 0, done
    return done.stdout


@pytest.mark.parametrize("engine", ["runc", "crun"])
def test_container_with_a_partition(
    engine: str, node: Installation, tree: AmdTree, bundle_of: Bundles
) -> None:
    """inspect has its nodes and rules, ps and map its memory; the partition has its own id."""
    made = given(bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=0:3"]), KFD, RENDER, INTEL)
    partition = tree.node.gpus[0].devices[3]
    with started(made, node, engine) as live:
        pid = live.pid
        amd_users.runs(tree.root, pid)
        amd_users.compute(tree.root, pid, {partition.kfd_id or 0: 6 * GIB})
        live.inside("mknod", OTHER[0], "c", str(OTHER[1]), str(OTHER[2]))
        done = live.gpuhook("inspect", "-o", "json")
        text = live.gpuhook("inspect").stdout
        ps = json.loads(on_node(live, "ps", "-o", "json"))
        picture = on_node(live, "map", "--width", "160")
    assert done.rc == 0, done
    facts = done.document("inspect")
    assert {one["path"]: one["allowed"] for one in facts["nodes"]} == {
        KFD[0]: True, RENDER[0]: True, OTHER[0]: False,
    }  # fmt: skip
    assert facts["gpus"][0] == partition.id
    assert facts["driver"] == {"running": "amdgpu 6.16.13", "mounted": None, "agree": None}
    assert facts["env"]["config"] == ["AMD_VISIBLE_DEVICES=0:3"]
    assert facts["findings"] == []
    assert " 0:3,0:4 (CPX/NPS4)\n" in text
    assert "amdgpu 6.16.13 on this node, which containers need no files of" in text
    (container,) = ps["containers"]
    assert (container["id"], container["gpus"]) == (live.id, [partition.id])
    (use,) = container["usage"]
    assert (use["used"], use["total"]) == (6 * GIB, partition.memory_bytes)
    assert [one["pid"] for one in use["processes"]] == [pid]
    assert "GPU 0 (Instinct MI300X OAM, CPX/NPS4)" in picture
    assert "0:3 6 of 24 GiB" in picture


def test_partition_mode_changed(node: Installation, tree: AmdTree, bundle_of: Bundles) -> None:
    """The node of a partition that no longer exists is a finding."""
    made = given(bundle_of("debian", WAIT), KFD, RENDER)
    with started(made, node) as live:
        shutil.rmtree(tree.kfd_node(131))
        done = live.gpuhook("inspect", "-o", "json")
    (finding,) = done.document("inspect")["findings"]
    assert finding["code"] == "GH1123"
    assert RENDER[0] in finding["message"]


def test_request_without_an_answer(node: Installation, bundle_of: Bundles) -> None:
    """A container that requests AMD GPUs of a plain runtime has none, and inspect says so."""
    made = bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=all"])
    with started(made, node) as live:
        done = live.gpuhook("inspect", "-o", "json")
    (finding,) = done.document("inspect")["findings"]
    assert finding["code"] == "GH1745"
    assert "AMD_VISIBLE_DEVICES=all" in finding["message"]
