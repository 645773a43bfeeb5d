# SPDX-License-Identifier: Apache-2.0
"""A look at a node, and whether there is a reason for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuhook.kubernetes import node_look
from gpuhook.kubernetes.configuration import Configuration
from gpuhook.kubernetes.launch import Launch
from gpuhook.vendors.nvidia import gather
from gpuhook.vendors.nvidia.inventory import Node
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4", real_nodes=False)


def _launch(node: SimulatedNode) -> Launch:
    return Launch(
        host_root=node.host_root, node_driver_root=node.driver_root, node_dev_root=node.dev_root
    )


def test_node_that_stays_as_it_is_is_not_asked_again(node: SimulatedNode) -> None:
    look = node_look.look(_launch(node), Configuration())
    assert look.trouble is None
    assert not node_look.has_changed(look, _launch(node))


def test_instance_that_is_made_during_a_look_is_a_reason_for_another(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = gather.node

    def late(*arguments: object, **options: object) -> Node:
        found = gathered(*arguments, **options)  # type: ignore[arg-type]
        made = "proc/driver/nvidia/capabilities/gpu0/mig/gi1/ci0"
        Path(node.host_root, made).mkdir(parents=True)
        return found

    monkeypatch.setattr(gather, "node", late)
    look = node_look.look(_launch(node), Configuration())
    assert node_look.has_changed(look, _launch(node))
