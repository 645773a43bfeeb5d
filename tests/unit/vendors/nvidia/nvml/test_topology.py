# SPDX-License-Identifier: Apache-2.0
"""The topology of GPUs, with a small real libnvidia-ml.so.1."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from gpuhook.vendors.nvidia.nvml import nvml_inventory, topology
from gpuhook.vendors.nvidia.nvml.topology import Pair, Topology
from tests.simulated import build, stub_events
from tests.simulated.node import SimulatedNode, make_node


def simulated_node(directory: Path, profile: str) -> SimulatedNode:
    return make_node(directory, profile, real_nodes=False)


def uuids(node: SimulatedNode) -> list[str]:
    return [str(gpu.uuid) for gpu in node.node.gpus]


def read_topology(node: SimulatedNode) -> Topology:
    with nvml_inventory.opened(node.nvml_library) as answering:
        return topology.links(answering.gpus())


def test_nvswitch_links_all_pairs(tmp_path: Path) -> None:
    """Links to NVSwitches connect all GPUs on them, in addition to PCIe."""
    node = simulated_node(tmp_path, "h100x8")
    found = read_topology(node)
    for (i, one), (j, other) in combinations(enumerate(uuids(node)), 2):
        expected = 20 if i // 4 == j // 4 else 10
        assert found.score(one, other) == found.score(other, one) == 1800 + expected
    first, second = uuids(node)[0], uuids(node)[7]
    assert str(found.pair(first, second)) == "18 NVLinks, through different CPUs"


def test_direct_links_apply_to_their_pair(tmp_path: Path) -> None:
    """A link from GPU to GPU is of that pair only; a lost GPU has none."""
    node = simulated_node(tmp_path, "lost-gpu")
    one, two, lost, four = uuids(node)
    found = read_topology(node)
    assert found.score(one, two) == 420
    assert found.score(one, four) == found.score(two, four) == 410
    assert [found.score(lost, other) for other in (one, two, four)] == [0, 0, 0]
    assert str(found.pair(one, lost)) == "no known way"


@pytest.mark.parametrize(
    ("level", "score", "words"),
    [
        (0, 60, "on the same board"),
        (10, 50, "through one PCIe switch"),
        (20, 40, "through several PCIe switches"),
        (30, 30, "through a PCIe host bridge"),
        (40, 20, "through the same CPU"),
        (50, 10, "through different CPUs"),
        (60, 0, "no known way"),
    ],
)
def test_each_level_has_its_score(tmp_path: Path, level: int, score: int, words: str) -> None:
    """The nearer the common ancestor, the higher the score."""
    node = simulated_node(tmp_path, "lost-gpu")
    for uuid in uuids(node):
        stub_events.say(node, uuid, f"levels {level} {level} {level} {level}")
        stub_events.unsay(node, uuid, "nvlink")
    pair = read_topology(node).pair(*uuids(node)[:2])
    assert (pair.score, str(pair)) == (score, words)


def test_gpu_that_is_lost_before_its_links_are_read(tmp_path: Path) -> None:
    """A GPU that falls off the bus after the node was read loses its pairs."""
    node = simulated_node(tmp_path, "h100x8")
    gone = uuids(node)[3]
    with nvml_inventory.opened(node.nvml_library) as answering:
        gpus = answering.gpus()
        stub_events.lose(node, gone)
        found = topology.links(gpus)
    for one, other in combinations(uuids(node), 2):
        assert (found.score(one, other) == 0) is (gone in (one, other))


def test_inactive_links_are_ignored(tmp_path: Path) -> None:
    """Of 18 links, those that are down are skipped, and the smaller number applies."""
    node = simulated_node(tmp_path, "h100x8")
    one, two = uuids(node)[:2]
    stub_events.say(node, one, "nvlink down - 6", "nvlink switch 00000000:05:00.0 4")
    stub_events.say(node, two, "nvlink switch 00000000:05:00.0 3")
    found = read_topology(node)
    assert found.pair(one, two).nvlinks == 3
    assert found.pair(one, uuids(node)[5]).nvlinks == 4


def test_links_to_different_switches_connect_nothing(tmp_path: Path) -> None:
    """Two GPUs on two switches have no NVLink with each other."""
    node = simulated_node(tmp_path, "lost-gpu")
    one, two = uuids(node)[:2]
    stub_events.say(node, one, "nvlink switch 00000000:05:00.0 6")
    stub_events.say(node, two, "nvlink switch 00000000:06:00.0 6")
    assert read_topology(node).pair(one, two) == Pair(40)


def test_switches_without_addresses_are_one(tmp_path: Path) -> None:
    """In a virtual machine the switches are unknown: all links lead to one fabric."""
    node = simulated_node(tmp_path, "lost-gpu")
    one, two = uuids(node)[:2]
    for uuid in (one, two):
        stub_events.say(node, uuid, "nvlink switch - 12")
    assert read_topology(node).pair(one, two) == Pair(40, 12)


def test_old_library_has_an_empty_topology(tmp_path: Path) -> None:
    """A library without the calls."""
    node = simulated_node(tmp_path, "h100x8")
    library = Path(node.nvml_library)
    library.unlink()
    library.write_bytes(build.nvml_stub(old=True).read_bytes())
    assert read_topology(node) == Topology()


def test_empty_topology_has_scores_of_0() -> None:
    """As for a node from an inventory."""
    assert Topology().score("GPU-1", "GPU-2") == 0
