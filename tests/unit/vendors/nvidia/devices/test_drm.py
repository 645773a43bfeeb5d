# SPDX-License-Identifier: Apache-2.0
"""Graphics nodes: those of a GPU, and those in a device of the spec."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.cdi import validate
from gpuhook.vendors.nvidia import discover
from gpuhook.vendors.nvidia.devices import drm
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import Node
from gpuhook.vendors.nvidia.spec.generate_options import Choices
from gpuhook.vendors.nvidia.spec.gpu_spec import describe
from tests.simulated.graphics import RENDER, VIDEO, with_drm
from tests.simulated.node import SimulatedNode, make_node

CARD, RENDER_NODE = "/dev/dri/card1", "/dev/dri/renderD128"
PLACE = "/dev/dri/by-path/pci-0000:00:1e.0-"
OWN = {CARD, RENDER_NODE, PLACE + "card", PLACE + "render"}


@pytest.fixture
def simulated(tmp_path: Path) -> SimulatedNode:
    """Return a simulated node with a T4 that has nodes for graphics."""
    return make_node(tmp_path, with_drm(dump_file.load("t4")))


def described_node(simulated: SimulatedNode) -> Node:
    """Return the node as generate-cdi sees it."""
    return discover.node(
        discover.Roots(simulated.driver_root, simulated.dev_root, simulated.host_root)
    )


def edits(node: Node, name: str, **choices: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of a device's nodes by path."""
    found = describe(node, Choices(**choices)).spec
    validate.check(found, "generated")
    device = next(one for one in found["devices"] if one["name"] == name)
    return {one["path"]: dict(one) for one in device["containerEdits"]["deviceNodes"]}


def test_gpu_has_the_nodes_of_its_pci_device(simulated: SimulatedNode) -> None:
    """Not the card of another device; links by path are resolved to the nodes."""
    (Path(simulated.dev_root) / "dev/dri/card0").write_text("")
    node = described_node(simulated)
    assert node.gpus[0].drm == ("card1", "renderD128")
    found = {d.path: d for d in node.device_nodes if d.path.startswith("/dev/dri/")}
    assert set(found) == OWN
    assert found[PLACE + "render"].host_path == simulated.dev_root + RENDER_NODE
    assert (found[CARD].major, found[CARD].minor, found[CARD].gid) == (226, 1, VIDEO)
    assert node.warnings == ()


def test_graphics_nodes_are_open_to_every_user(simulated: SimulatedNode) -> None:
    """No group is needed: engines that lack additionalGids can read the spec."""
    node = described_node(simulated)
    given = edits(node, "0")
    assert set(given) == {"/dev/nvidia0", *OWN}
    assert {given[path]["fileMode"] for path in OWN} == {0o666}
    assert (given[CARD]["gid"], given[PLACE + "render"]["gid"]) == (VIDEO, RENDER)
    spec = describe(node, Choices()).spec
    assert spec["cdiVersion"] == "0.5.0"
    assert "additionalGids" not in spec["devices"][0]["containerEdits"]
    assert set(edits(node, "all")) == set(given)


def test_without_additional_groups_nodes_keep_the_hosts_mode(simulated: SimulatedNode) -> None:
    """Then only root opens them, and the edits have no group."""
    node = described_node(simulated)
    given = edits(node, "0", additional_gids=False)
    assert {given[path]["fileMode"] for path in OWN} == {0o660}
    spec = describe(node, Choices(additional_gids=False)).spec
    assert all("additionalGids" not in one["containerEdits"] for one in spec["devices"])


def test_groups_of_driver_nodes_are_optional() -> None:
    """A node for one group adds that group, unless the option disables it."""
    node = dump_file.load("t4")
    kept = tuple(replace(one, mode=0o660, gid=27) for one in node.device_nodes)
    node = replace(node, device_nodes=kept)
    spec = describe(node, Choices()).spec
    assert spec["containerEdits"]["additionalGids"] == [27]
    assert spec["devices"][0]["containerEdits"]["additionalGids"] == [27]
    spec = describe(node, Choices(additional_gids=False)).spec
    assert "additionalGids" not in str(spec)


def test_graphics_nodes_require_graphics_or_display(simulated: SimulatedNode) -> None:
    """A spec for compute alone has none of them."""
    node = described_node(simulated)
    for named in ("graphics", "display", "all"):
        wanted = vocabulary.parse_capabilities(named)
        assert set(edits(node, "0", capabilities=wanted)) == {"/dev/nvidia0", *OWN}
    wanted = vocabulary.parse_capabilities("compute,utility,video,ngx")
    assert set(edits(node, "0", capabilities=wanted)) == {"/dev/nvidia0"}


@pytest.mark.parametrize(("graphics", "has"), [(True, True), (False, False), (None, False)])
def test_mig_instance_needs_gfx_for_graphics_nodes(graphics: bool | None, has: bool) -> None:
    """An instance without +gfx has none of its GPU's nodes, nor has a GPU in MIG mode."""
    node = with_drm(dump_file.load("a100-mig"))
    gpu = next(one for one in node.gpus if one.instances)
    mine = tuple(replace(one, has_graphics=graphics) for one in gpu.instances)
    gpus = tuple(replace(one, instances=mine) if one is gpu else one for one in node.gpus)
    given = edits(replace(node, gpus=gpus), f"{gpu.index}:{mine[0].index}")
    assert {path for path in given if path in drm.paths(gpu)} == (
        set(drm.paths(gpu)) if has else set()
    )


def test_missing_or_wrong_graphics_node_is_a_warning(simulated: SimulatedNode) -> None:
    """A GPU computes without graphics nodes: it is offered."""
    card, render = (Path(simulated.dev_root + path) for path in (CARD, RENDER_NODE))
    card.unlink()
    render.unlink()
    os.mknod(render, stat.S_IFCHR | 0o660, os.makedev(1, 3))
    node = described_node(simulated)
    assert set(edits(node, "0")) == {"/dev/nvidia0"}
    missing, wrong = node.warnings
    assert missing.startswith(f"{card}: no such device node")
    assert wrong == f"{render} is not the character device 226:128: left out"


def test_unknown_names_of_the_kernel_are_ignored(simulated: SimulatedNode) -> None:
    """Connectors are not nodes; a GPU without a PCI address has no nodes."""
    bus = Path(simulated.host_root) / "sys/bus/pci/devices/0000:00:1e.0/drm"
    for name in ("card1-HDMI-A-1", "controlD64", "card", "..."):
        (bus / name).mkdir()
    assert described_node(simulated).gpus[0].drm == ("card1", "renderD128")
    assert drm.names(simulated.host_root, None) == ()
    assert drm.names(simulated.host_root, "00000000:07:00.0") == ()


def test_dumps_with_and_without_graphics_nodes_are_read() -> None:
    """An older dump has no such key; one with the key keeps it."""
    node = with_drm(dump_file.load("lost-gpu"))
    again = dump_file.parse(dump_file.text(node, "yaml").encode(), "node")
    assert again.gpus == node.gpus
    assert dump_file.load("lost-gpu").gpus[0].drm == ()
    lost = next(gpu for gpu in node.gpus if gpu.lost)
    assert not set(drm.paths(lost)) & {device.path for device in node.device_nodes}
