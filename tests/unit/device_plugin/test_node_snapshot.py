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
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia.devices import node_signature
from gpuhook.vendors.nvidia.inventory.inventory import Gpu
from gpuhook.vendors.nvidia.plugin import nvidia_part
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
    return any(node_snapshot.has_other_devices(one.domain, last, options) for one in vendors())


def gpus(snapshot: node_snapshot.NodeSnapshot) -> tuple[Gpu, ...]:
    """Return NVIDIA's GPUs of a snapshot."""
    return nvidia_part.own_part(snapshot.parts).node.gpus


def test_unchanged_node_needs_no_new_snapshot(node: SimulatedNode) -> None:
    first = node_snapshot.take(launch(node), Configuration())
    assert [gpu.uuid for gpu in gpus(first)] == [node.node.gpus[0].uuid]
    assert not has_changed(first, launch(node))


@pytest.mark.parametrize("is_away", [False, True])
def test_change_during_a_snapshot_needs_a_new_snapshot(
    node: SimulatedNode, monkeypatch: pytest.MonkeyPatch, is_away: bool
) -> None:
    """A GPU can be plugged in after the NVML query."""
    ask = nvidia_part._query_driver
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
        patch.setattr(nvidia_part, "_query_driver", query_and_plug)
        first = node_snapshot.take(launch(node), Configuration())
    assert (first.error is not None) == is_away
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
        patch.setattr(nvidia_part, "signature", signature)
        first = node_snapshot.take(launch(node), Configuration())
    assert len(taken) >= number
    assert has_changed(first, launch(node))


def test_lost_gpu_keeps_its_last_known_memory(node: SimulatedNode) -> None:
    """Units that are counted by memory remain in the list, as unhealthy."""
    first = node_snapshot.take(launch(node), Configuration())
    (gpu,) = gpus(first)
    assert gpu.memory_bytes
    gone = replace(gpu, lost="fallen off the bus", memory_bytes=None)
    lost = with_gpu(first, gone)
    found = node_snapshot.with_lost(lost, first)
    assert gpus(found) == (replace(gone, memory_bytes=gpu.memory_bytes),)
    assert node_snapshot.with_lost(lost, found) == found
    assert node_snapshot.with_lost(lost, node_snapshot.NodeSnapshot()) == lost
    nameless = with_gpu(first, replace(gone, uuid=None))
    assert node_snapshot.with_lost(nameless, first) == nameless


def with_gpu(snapshot: node_snapshot.NodeSnapshot, gpu: Gpu) -> node_snapshot.NodeSnapshot:
    """Return a snapshot with this GPU of NVIDIA in place of the others."""
    own = nvidia_part.own_part(snapshot.parts)
    return replace(snapshot, parts=(replace(own, inventory=replace(own.node, gpus=(gpu,))),))


def test_driver_that_does_not_answer_keeps_its_gpus(node: SimulatedNode) -> None:
    """They are unhealthy; after a GPU and the driver are gone for good, there is no GPU."""
    first = node_snapshot.take(launch(node), Configuration())
    stub_events.take_away(node)
    away = node_snapshot.take(launch(node), Configuration())
    assert away.error is not None
    assert gpus(away) == ()
    kept = node_snapshot.with_lost(away, first)
    assert (gpus(kept), kept.error) == (gpus(first), away.error)
    assert not kept.is_whole
    assert gpus(node_snapshot.with_lost(replace(away, parts=()), first)) == ()


def test_vendor_that_fails_does_not_affect_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    first = node_snapshot.take(Launch(inventory="mixed"), Configuration())
    assert [part.domain for part in first.parts] == ["nvidia.com", "amd.com"]
    assert first.is_whole

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(AmdVendor, "dumped_part", fail)
    failed = node_snapshot.take(Launch(inventory="mixed"), Configuration())
    assert failed.parts == first.parts[:1]
    assert failed.failures == ("amd.com: ValueError('a bug')",)
    assert not failed.is_whole
    kept = node_snapshot.with_lost(failed, first).parts[1]
    assert (kept.inventory, kept.trouble) == (first.parts[1].inventory, failed.failures[0])


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
        patch.setattr(AmdVendor, "deadline", 0.01)
        patch.setattr(AmdVendor, "plugin_part", blocked)
        found = [node_snapshot.take(launch(node), Configuration()) for _ in range(3)]
    assert [one.parts for one in found] == [first.parts[:1]] * 3
    assert all("the amdgpu driver did not answer" in one.failures[0] for one in found)
    assert len(calls) == 1
    kept = node_snapshot.with_lost(found[2], first).parts[1]
    assert (kept.inventory, kept.trouble) == (first.parts[1].inventory, found[2].failures[0])
    answer.set()
    driver_calls._callers["amd.com", "inventory"][0].join()
    assert node_snapshot.take(launch(node), Configuration()).parts == first.parts


def test_driver_that_hangs_is_the_error_of_a_node_without_nvidia_hardware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the start of the plugin and later: NVML is not missing there."""
    amd_tree.build(tmp_path, "mi300x8")
    options = Launch(
        host_root=str(tmp_path), node_driver_root=str(tmp_path), node_dev_root=str(tmp_path)
    )
    first = node_snapshot.take(options, Configuration())
    answer = Event()
    with monkeypatch.context() as patch:
        patch.setattr(AmdVendor, "deadline", 0.01)
        patch.setattr(AmdVendor, "plugin_part", lambda *_: answer.wait())
        hangs = node_snapshot.take(options, Configuration())
    answer.set()
    driver_calls._callers["amd.com", "inventory"][0].join()
    for found in (hangs, node_snapshot.with_lost(hangs, first)):
        assert found.error is not None
        assert "the amdgpu driver did not answer" in found.error.message
        assert not found.is_whole


def test_node_without_nvidia_hardware_lacks_no_driver(tmp_path: Path) -> None:
    amd_tree.build(tmp_path, "mi300x8")
    options = Launch(
        host_root=str(tmp_path), node_driver_root=str(tmp_path), node_dev_root=str(tmp_path)
    )
    found = node_snapshot.take(options, Configuration())
    assert (found.error, found.is_whole) == (None, True)
    assert not has_changed(found, options)
    # A GPU of NVIDIA without its driver is a trouble, and AMD's are there nevertheless.
    card = tmp_path / "sys/bus/pci/devices/0000:af:00.0"
    card.mkdir()
    (card / "vendor").write_text("0x10de\n")
    found = node_snapshot.take(options, Configuration())
    assert found.error is not None
    assert [part.domain for part in found.parts] == ["nvidia.com", "amd.com"]
