# SPDX-License-Identifier: Apache-2.0
"""compare on real containers of a simulated node with AMD partitions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.contract.bundles import Bundles
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
