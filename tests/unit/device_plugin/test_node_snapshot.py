# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a node that changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from gpuhook.device_plugin import driver_calls, node_snapshot
from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.launch_options import Launch
from gpuhook.vendors.amd.amd_vendor import AmdVendor
from gpuhook.vendors.nvidia.devices import node_signature
from tests.simulated import amd_tree, stub_events
from tests.simulated.node import SimulatedNode, make_node


@pytest.fixture
def node(tmp_path: Path) -> SimulatedNode:
    return make_node(tmp_path / "node", "t4", real_nodes=False)


def launch(node: SimulatedNode) -> Launch:
    return Launch(
        host_root=node.host_root, node_driver_root=node.driver_root, node_dev_root=node.dev_root
    )


def has_changed(last: node_snapshot.NodeSnapshot, options: Launch) -> bool:
    return node_snapshot.has_other_gpus(last, options) or node_snapshot.has_other_parts(
        last, options
    )


def test_unchanged_node_needs_no_new_snapshot(node: SimulatedNode) -> None:
    first = node_snapshot.take(launch(node), Configuration())
    assert [gpu.uuid for gpu in first.seen.gpus] == [node.node.gpus[0].uuid]
    assert not has_changed(first, launch(node))


@pytest.mark.parametrize("is_away", [False, True])
def test_change_during_a_snapshot_needs_a_new_snapshot(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """A GPU can be plugged in after the NVML query."""
    ask = node_snapshot._query_driver
    if is_away:
        stub_events.take_away(node)

    def plug_gpu() -> None:
        gpu = Path(node.host_root, "proc/driver/nvidia/gpus/0000:af:00.0")
        gpu.mkdir()

    def query_and_plug(*arguments: object) -> object:
        try:
            return ask(*arguments)  # type: ignore[arg-type]  # as they are
        finally:
            plug_gpu()

    with monkeypatch.context() as patch:
        patch.setattr(node_snapshot, "_query_driver", query_and_plug)
        first = node_snapshot.take(launch(node), Configuration())
    assert (first.trouble is not None) == is_away
    assert has_changed(first, launch(node))
    second = node_snapshot.take(launch(node), Configuration())
    assert not has_changed(second, launch(node))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_change_between_two_signatures_needs_a_new_snapshot(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A GPU can be plugged in after the signature of this number."""
    take = node_signature.signature
    taken: list[tuple[str, ...]] = []

    def signature(*arguments: str) -> tuple[str, ...]:
        taken.append(take(*arguments))
        if len(taken) == number:
            Path(node.host_root, "proc/driver/nvidia/gpus/0000:af:00.0").mkdir()
        return taken[-1]

    with monkeypatch.context() as patch:
        patch.setattr(node_snapshot, "signature", signature)
        first = node_snapshot.take(launch(node), Configuration())
    assert len(taken) >= number
    assert has_changed(first, launch(node))


def test_lost_gpu_keeps_its_last_known_memory(node: SimulatedNode) -> None:
    """Units that are counted by memory remain in the list, as unhealthy."""
    first = node_snapshot.take(launch(node), Configuration())
    (gpu,) = first.node.gpus
    assert gpu.memory_bytes
    gone = replace(gpu, lost="fallen off the bus", memory_bytes=None)
    lost = replace(first, node=replace(first.node, gpus=(gone,)))
    found = node_snapshot.with_last_memory(lost, first)
    assert found.node.gpus == (replace(gone, memory_bytes=gpu.memory_bytes),)
    assert node_snapshot.with_last_memory(lost, found) == found
    assert node_snapshot.with_last_memory(lost, node_snapshot.NodeSnapshot()) == lost
    other = replace(gone, uuid=None)
    nameless = replace(first, node=replace(first.node, gpus=(other,)))
    assert node_snapshot.with_last_memory(nameless, first) == nameless


def test_vendor_that_fails_does_not_affect_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    first = node_snapshot.take(Launch(inventory="mixed"), Configuration())
    assert [part.domain for part in first.parts] == ["amd.com"]
    assert first.is_whole

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(AmdVendor, "dumped_part", fail)
    failed = node_snapshot.take(Launch(inventory="mixed"), Configuration())
    assert failed.node == first.node
    assert failed.parts == ()
    assert failed.failures == ("amd.com: ValueError('a bug')",)
    assert not failed.is_whole
    kept = node_snapshot.with_lost(failed, first).parts[0]
    assert (kept.inventory, kept.trouble) == (first.parts[0].inventory, failed.failures[0])


def test_driver_that_blocks_its_readers_does_not_affect_the_other(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is one blocked reader, and the next snapshot is as before once it returns."""
    amd_tree.build(Path(node.host_root), "mixed")
    first = node_snapshot.take(launch(node), Configuration())
    answer, calls = Event(), []

    def blocked(_: AmdVendor, *arguments: object) -> None:
        calls.append(arguments)
        answer.wait()

    with monkeypatch.context() as patch:
        patch.setattr(driver_calls, "SECONDS", 0.01)
        patch.setattr(AmdVendor, "plugin_part", blocked)
        found = [node_snapshot.take(launch(node), Configuration()) for _ in range(3)]
    assert [one.node for one in found] == [first.node] * 3
    assert [one.parts for one in found] == [()] * 3
    assert all("the amdgpu driver did not answer" in one.failures[0] for one in found)
    assert len(calls) == 1
    kept = node_snapshot.with_lost(found[2], first).parts[0]
    assert (kept.inventory, kept.trouble) == (first.parts[0].inventory, found[2].failures[0])
    answer.set()
    driver_calls._callers["amd.com", "inventory"].join()
    assert node_snapshot.take(launch(node), Configuration()).parts == first.parts


def test_node_without_nvidia_hardware_lacks_no_driver(tmp_path: Path) -> None:
    amd_tree.build(tmp_path, "mi300x8")
    options = Launch(
        host_root=str(tmp_path), node_driver_root=str(tmp_path), node_dev_root=str(tmp_path)
    )
    found = node_snapshot.take(options, Configuration())
    assert (found.trouble, found.is_whole) == (None, True)
    assert not has_changed(found, options)
    # A GPU of NVIDIA without its driver is a trouble, and AMD's are there nevertheless.
    card = tmp_path / "sys/bus/pci/devices/0000:af:00.0"
    card.mkdir()
    (card / "vendor").write_text("0x10de\n")
    found = node_snapshot.take(options, Configuration())
    assert found.trouble is not None
    assert len(found.parts) == 1
