# SPDX-License-Identifier: Apache-2.0
"""compare on real containers of a simulated node with AMD partitions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.contract.bundles import Bundle, Bundles
from tests.contract.installation import Installation
from tests.contract.live import WAIT, Live, started
from tests.contract.test_amd_usage import KFD, RENDER, given
from tests.simulated import amd_tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

OTHER = ("/dev/dri/renderD132", 226, 132)
CARD = ("/dev/dri/card4", 226, 4)


@pytest.fixture
def node(apart: Installation, tmp_path: Path) -> Installation:
    """Return an installation on a node with AMD partitions only, without a CDI spec."""
    tree = amd_tree.build(tmp_path / "amd", "mi300x-cpx", real_nodes=True)
    (apart.state / "node.json").unlink()
    for spec in apart.specs.glob("*"):
        spec.unlink()
    return replace(apart, node=replace(apart.node, host_root=str(tree.root)))


def _compared(live: Live) -> dict[str, Any]:
    shown = live.gpuhook("compare", "-o", "json")
    (one,) = json.loads(shown.stdout)["containers"]
    found: dict[str, Any] = one
    return found


def _items(one: dict[str, Any], kind: str) -> dict[str, tuple[str, Any]]:
    return {
        item["name"]: (item["verdict"], item["reason"])
        for item in one["items"]
        if item["kind"] == kind
    }


def test_nodes_of_a_partition_are_compared(node: Installation, bundle_of: Bundles) -> None:
    """The nodes of AMD's runtime, with another mode, and no node that gpuhook would not add."""
    made = given(bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=0:3"]), KFD, RENDER, CARD)
    with started(made, node, "runc") as live:
        one = _compared(live)
    assert one["request"]["names"] == ["amd.com/gpu=0:3"]
    assert _items(one, "access") == {path: ("same", None) for path, _, _ in (KFD, RENDER, CARD)}
    assert set(_items(one, "node")) == {path for path, _, _ in (KFD, RENDER, CARD)}
    (mode,) = [item for item in one["items"] if item["kind"] == "node" and item["name"] == KFD[0]]
    assert (mode["there"], mode["gpuhook"]) == ("c 238:0 0660", "c 238:0 0666")


def test_partition_of_another_container_is_a_difference(
    node: Installation, bundle_of: Bundles
) -> None:
    made = given(bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=0:3"]), KFD, RENDER, OTHER)
    with started(made, node, "runc") as live:
        one = _compared(live)
    assert _items(one, "node")[OTHER[0]] == ("only-there", None)
    assert _items(one, "node")[CARD[0]] == ("only-gpuhook", None)


def test_nodes_are_the_request_of_a_container_without_one(
    node: Installation, bundle_of: Bundles
) -> None:
    with started(given(bundle_of("debian", WAIT), KFD, RENDER, CARD), node, "runc") as live:
        one = _compared(live)
    assert (one["request"]["names"], one["request"]["where"]) == (
        ["amd.com/gpu=3"],
        "its device nodes",
    )


def _toolkit(made: Bundle, *nodes: tuple[str, int, int], hook: bool = True) -> Bundle:
    """Give a container what AMD's toolkit gives: rwm, the host's mode, uid 0, and its hook."""
    given(made, *nodes)
    config = made.config()
    for device in config["linux"]["devices"]:
        device.update(uid=0, gid=109)
    for rule in config["linux"]["resources"]["devices"]:
        if rule.get("major") is not None:
            rule["access"] = "rwm"
    if hook:
        args = ["amd-ctk", "gpu-tracker", "release", "x"]
        config["hooks"] = {"poststop": [{"path": "/usr/local/bin/amd-ctk", "args": args}]}
    made.write(config)
    return made


def _amd_ctk(node: Installation, kfd_major: int) -> None:
    """Write the spec of `amd-ctk cdi generate` for the fourth device, with numbers."""
    nodes = [(CARD[0], 226, CARD[2]), (RENDER[0], 226, RENDER[2]), (KFD[0], kfd_major, 0)]
    entries = [
        {
            "path": path, "type": "c", "major": major, "minor": minor, "fileMode": 432,
            "permissions": "rwm", "uid": 0, "gid": 109,
        }
        for path, major, minor in nodes
    ]  # fmt: skip
    device = {"name": "3", "containerEdits": {"deviceNodes": entries}}
    spec = {"cdiVersion": "0.6.0", "kind": "amd.com/gpu", "devices": [device]}
    (node.specs / "amd.json").write_text(json.dumps(spec), encoding="utf-8")


@pytest.fixture
def hook(tmp_path: Path) -> Path:
    """Return a program with the name of AMD's, which the runtime runs at the end."""
    program = tmp_path / "amd-ctk"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("engine", ["runc", "crun"])
def test_runtime_of_amd_is_named(
    engine: str, node: Installation, bundle_of: Bundles, hook: Path
) -> None:
    """Its modes, permissions and variable are known differences for root."""
    made = _toolkit(bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=3"]), KFD, RENDER, CARD)
    config = made.config()
    config["hooks"]["poststop"][0]["path"] = str(hook)
    made.write(config)
    with started(made, node, engine) as live:
        one = _compared(live)
        text = live.gpuhook("compare", "-o", "wide").stdout
    assert one["givenBy"] == "amd-container-runtime"
    assert (one["counts"]["differences"], one["request"]["names"]) == (0, ["amd.com/gpu=3"])
    (rule,) = [item for item in one["items"] if item["name"] == f"{RENDER[0]} in config.json"]
    assert (rule["there"], rule["gpuhook"]) == ("rwm", "rw")
    verdict, reason = _items(one, "variable")["AMD_VISIBLE_DEVICES"]
    assert (verdict, reason) == ("differs", "AMD's runtime does not change the request")
    assert "GPUs added by amd-container-runtime" in text
    assert "AMD's toolkit keeps the mode of the host's node" in text


def test_other_user_without_the_group_has_a_difference(
    node: Installation, bundle_of: Bundles
) -> None:
    made = _toolkit(bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=3"]), KFD, RENDER, CARD)
    config = made.config()
    config["process"]["user"] = {"uid": 1000, "gid": 1000}
    made.write(config)
    with started(made, node, "runc") as live:
        one = _compared(live)
    assert _items(one, "node")[KFD[0]] == ("differs", None)


def test_request_that_amd_ignores_is_refused_by_gpuhook(
    node: Installation, bundle_of: Bundles
) -> None:
    made = _toolkit(bundle_of("debian", WAIT, ["AMD_VISIBLE_DEVICES=3,999"]), KFD, RENDER, CARD)
    with started(made, node, "runc") as live:
        one = _compared(live)
    (item,) = one["items"]
    assert item["there"] == "started, GPUs added by amd-container-runtime"
    assert item["gpuhook"].startswith("refused: GH1102")


def test_spec_of_amd_ctk_is_named(node: Installation, bundle_of: Bundles) -> None:
    """The engine copies its permissions; gpuhook's answer does not come from that file."""
    _amd_ctk(node, kfd_major=238)
    made = _toolkit(bundle_of("debian", WAIT), KFD, RENDER, CARD, hook=False)
    with started(made, node, "runc") as live:
        one = _compared(live)
    assert one["givenBy"] == "amd-ctk-cdi"
    assert one["request"]["names"] == ["amd.com/gpu=3"]
    (mode,) = [item for item in one["items"] if item["kind"] == "node" and item["name"] == KFD[0]]
    assert (mode["there"], mode["gpuhook"]) == ("c 238:0 0660", "c 238:0 0666")
    assert one["counts"]["differences"] == 0


def test_old_major_in_the_spec_of_amd_ctk_is_a_difference(
    node: Installation, bundle_of: Bundles
) -> None:
    """amd-ctk wrote the major of another boot into its file."""
    _amd_ctk(node, kfd_major=235)
    made = _toolkit(bundle_of("debian", WAIT), (KFD[0], 235, 0), RENDER, CARD, hook=False)
    with started(made, node, "runc") as live:
        one = _compared(live)
    assert one["givenBy"] == "amd-ctk-cdi"
    (kfd,) = [item for item in one["items"] if item["kind"] == "node" and item["name"] == KFD[0]]
    assert (kfd["there"], kfd["reason"]) == ("c 235:0 0660", None)
    (note,) = one["notes"]
    assert "amd.json has the number 235:0 of /dev/kfd, but the host's is 238:0" in note


def test_same_nodes_of_another_program_are_unknown(node: Installation, bundle_of: Bundles) -> None:
    """A device plugin passes them with rw: that is not the file of amd-ctk."""
    _amd_ctk(node, kfd_major=238)
    with started(given(bundle_of("debian", WAIT), KFD, RENDER, CARD), node, "runc") as live:
        one = _compared(live)
    assert one["givenBy"] == "unknown"
    assert _items(one, "node")[KFD[0]] == ("differs", None)
