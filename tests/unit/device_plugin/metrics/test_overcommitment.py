# SPDX-License-Identifier: Apache-2.0
"""Memory of running containers above the memory of the offered units."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.metrics.container_memory import HolderEntry, MemoryLimitFact
from gpuhook.device_plugin.metrics.overcommitment import overcommitments
from gpuhook.device_plugin.metrics.unit_holders import Holder
from gpuhook.device_plugin.offer.offered_devices import Resource, UnitMemory
from tests.kubelet.plugin import resource

MIB = 1 << 20
OLD, NEW = "nvidia.com/gpu", "nvidia.com/gpumem"
UUID = resource().devices[0].uuid
MAIN = Holder("default", "a", "main")
SIDE = Holder("default", "a", "side")


def units_of(hard: int) -> Resource:
    """Return a resource whose units have that many MiB each."""
    memory = {UUID: UnitMemory(hard * MIB, hard * MIB)}
    return replace(resource(), name=NEW, memory=memory)


def entry(holder: Holder, *limits: int) -> HolderEntry:
    """Return the ledger entry of a container: limits in MiB."""
    memory = tuple(MemoryLimitFact(UUID, limit * MIB, 0) for limit in limits)
    return HolderEntry(f"{holder.pod}-{holder.container}", *holder, memory=memory)


@pytest.mark.parametrize(
    ("name", "ids", "limits", "held"),
    [
        (OLD, ["::0"], [4032], {"default/a": 4032}),  # a removed resource
        (OLD, [""], [], {"default/a": None}),  # a whole GPU
        (NEW, ["::0"], [4032], {"default/a": 4032}),  # the units were larger
        (NEW, ["::0", "::1"], [2048], {}),
        (NEW, ["::0", "::1"], [1024], {}),  # the units were smaller
        (NEW, ["::0"], [], {}),  # a runtime that records no limits
        ("example.com/other", ["::7"], [100], {"default/a": 100}),
    ],
)
def test_memory_above_the_units_is_overcommitted(
    name: str, ids: list[str], limits: list[int], held: dict[str, int | None]
) -> None:
    holders = {name: {f"{UUID}{one}": MAIN for one in ids}}
    found = overcommitments([units_of(1024)], holders, [entry(MAIN, *limits)])
    assert [one.held for one in found] == (
        [{k: v and v * MIB for k, v in held.items()}] if held else []
    )


def test_memory_of_the_containers_of_a_pod_is_added() -> None:
    holders = {OLD: {f"{UUID}::0": MAIN, f"{UUID}::1": SIDE}}
    (found,) = overcommitments([units_of(1024)], holders, [entry(MAIN, 10), entry(SIDE, 20)])
    assert found.held == {"default/a": 30 * MIB}
    (found,) = overcommitments([units_of(1024)], holders, [entry(MAIN, 10)])
    assert found.held == {"default/a": None}
    assert "default/a (no recorded limit)" in found.sentence


def test_gpu_without_memory_limits_is_not_overcommitted() -> None:
    holders = {OLD: {f"{UUID}::0": MAIN}}
    assert not overcommitments([replace(resource(), name=NEW)], holders, [entry(MAIN, 10)])


@pytest.mark.parametrize("unit", ["", "::", "GPU-of-another-node::0", "0"])
def test_unit_of_an_unknown_device_is_ignored(unit: str) -> None:
    assert not overcommitments([units_of(1024)], {OLD: {unit: MAIN}}, [entry(MAIN, 10)])
