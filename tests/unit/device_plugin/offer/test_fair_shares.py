# SPDX-License-Identifier: Apache-2.0
"""The division of device memory: numbers of units, limits, and impossible limits."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS, SharedResource
from gpuhook.device_plugin.offer.offered_devices import Resource, UnitMemory
from gpuhook.device_plugin.offer.resources import MAX_MESSAGE, Offer, offered
from gpuhook.errors import FileError
from tests.refusal import refused
from tests.unit.offering import (
    GPU,
    H100,
    T4,
    changed,
    configured,
    divided,
    ids,
    offer,
    with_gpus,
)

MIB, GIB = 1 << 20, 1 << 30
UNITS = "nvidia.com/gpumem"
MIXED = with_gpus(H100, *T4.gpus, *(replace(gpu, index=gpu.index + 1) for gpu in H100.gpus[:1]))
SMALL, LARGE = (str(gpu.uuid) for gpu in MIXED.gpus)  # 15360 and 81559 MiB


def memory_units(unit: int, **more: object) -> SharedResource:
    return SharedResource(GPU, rename=UNITS, unit=unit, **more)  # type: ignore[arg-type]


def only_resource(offer: Offer) -> Resource:
    (resource,) = offer.resources
    return resource


def mebibytes(resource: Resource) -> dict[str, tuple[int, int]]:
    return {uuid: (m.hard // MIB, m.soft // MIB) for uuid, m in resource.memory.items()}


def counts(resource: Resource) -> dict[str, int]:
    return {uuid: len(found) for uuid, found in resource.index.ids.items()}


def test_time_slicing_has_no_limit_by_default() -> None:
    entry = SharedResource(GPU, 4)
    resource = only_resource(offer(T4, entry))
    assert resource.memory == {}
    assert resource.entries == {T4.gpus[0].uuid: entry}
    assert only_resource(offer(T4, SharedResource(GPU, 4, memory="none"))).memory == {}
    assert only_resource(offer(T4)).entries == {}


def test_fair_share_is_the_memory_of_a_gpu_less_the_reserve() -> None:
    resource = only_resource(offer(MIXED, SharedResource(GPU, 4, memory="fair")))
    assert mebibytes(resource) == {SMALL: (3776, 3776), LARGE: (20325, 20325)}
    assert not any(memory.is_asked for memory in resource.memory.values())


def test_reserve_is_configurable() -> None:
    configuration = configured(SharedResource(GPU, 4, memory="fair"))
    own = replace(configuration.own, memory_reserve=0)
    resource = only_resource(offered(T4, replace(configuration, own=own)))
    assert mebibytes(resource) == {SMALL: (3840, 3840)}


def test_configured_limit_guarantees_at_most_the_fair_share() -> None:
    resource = only_resource(offer(T4, SharedResource(GPU, 4, memory=2 * GIB)))
    assert mebibytes(resource) == {SMALL: (2048, 2048)}
    entry = SharedResource(GPU, 4, memory=8 * GIB, oversubscribe=True)
    assert mebibytes(only_resource(offer(T4, entry))) == {SMALL: (8192, 3776)}


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            SharedResource(GPU, 4, memory=4 * GIB),
            (
                "nvidia.com/gpu: 4 replicas of 4096 MiB are 16384 MiB, and a Tesla T4 has only "
                "15360 MiB, less 256 MiB of reserve"
            ),
        ),
        (
            SharedResource(GPU, 4, memory=3840 * MIB),
            (
                "nvidia.com/gpu: 4 replicas of 3840 MiB are 15360 MiB, and a Tesla T4 has only "
                "15360 MiB, less 256 MiB of reserve"
            ),
        ),
        (
            SharedResource(GPU, replica_memory=4 * GIB, memory=8 * GIB),
            (
                "nvidia.com/gpu: 3 replicas of 8192 MiB are 24576 MiB, and a Tesla T4 has only "
                "15360 MiB, less 256 MiB of reserve"
            ),
        ),
        (
            SharedResource(GPU, 20_000, memory="fair"),
            (
                "nvidia.com/gpu: 20000 replicas of 1 MiB are 20000 MiB, and a Tesla T4 has only "
                "15360 MiB, less 256 MiB of reserve"
            ),
        ),
    ],
)
def test_limits_above_the_memory_are_refused_with_their_sum(
    entry: SharedResource, problem: str
) -> None:
    """One device with too little memory is sufficient."""
    with refused("GH1847") as caught:
        offer(MIXED, entry)
    assert caught.value.message == f"sharing.timeSlicing.resources[0]: {problem}"


def test_number_of_replicas_follows_from_the_memory_of_each_gpu() -> None:
    resource = only_resource(offer(MIXED, SharedResource(GPU, replica_memory=4 * GIB)))
    assert counts(resource) == {SMALL: 3, LARGE: 19}
    assert mebibytes(resource) == {SMALL: (4096, 4096), LARGE: (4096, 4096)}
    assert resource.sharing == "time-slicing"
    unlimited = only_resource(
        offer(MIXED, SharedResource(GPU, replica_memory=4 * GIB, memory="none"))
    )
    assert counts(unlimited) == {SMALL: 3, LARGE: 19}
    assert unlimited.memory == {}


def test_single_replica_by_memory_is_limited() -> None:
    resource = only_resource(offer(T4, SharedResource(GPU, replica_memory=10 * GIB)))
    assert [unit.id for unit in resource.units] == [f"{SMALL}::0"]
    assert mebibytes(resource) == {SMALL: (10240, 10240)}


def test_gpu_smaller_than_a_replica_is_not_offered() -> None:
    found = offer(MIXED, SharedResource(GPU, replica_memory=20 * GIB))
    assert counts(only_resource(found)) == {LARGE: 3}
    assert found.warnings == (
        (
            f"{GPU}: device 0 (Tesla T4) is not offered: its 15360 MiB, less 256 MiB of reserve, "
            "are less than a replica of 20480 MiB"
        ),
    )


def test_unknown_memory_has_no_fair_share() -> None:
    without_memory = changed(T4, 0, memory_bytes=None)
    found = offer(without_memory, SharedResource(GPU, 4, memory="fair"))
    assert only_resource(found).memory == {}
    device = "the driver does not report the memory of device 0 (Tesla T4)"
    assert found.warnings == (f"{GPU}: {device}: its replicas have no limit",)
    found = offer(without_memory, SharedResource(GPU, 4, memory=GIB))
    assert only_resource(found).memory == {SMALL: UnitMemory(GIB, 0)}
    assert found.warnings == (f"{GPU}: {device}: cannot check whether 4 times 1024 MiB fit",)


@pytest.mark.parametrize("entry", [memory_units(GIB), SharedResource(GPU, replica_memory=GIB)])
def test_gpu_with_unknown_memory_has_no_memory_units(entry: SharedResource) -> None:
    without_memory = changed(T4, 0, memory_bytes=None)
    found = offer(without_memory, entry, strategy=MEMORY_UNITS if entry.unit else "time-slicing")
    assert found.resources == ()
    (text,) = found.warnings
    assert "not offered: the driver does not report its memory" in text


def test_mig_instances_are_divided_by_their_memory() -> None:
    node = divided(T4, 0, "1g.10gb", "1g.10gb")
    name = "nvidia.com/mig-1g.10gb"
    resource = only_resource(offer(node, SharedResource(name, 3, memory="fair"), mig="mixed"))
    assert set(mebibytes(resource).values()) == {(3328, 3328)}
    entry = SharedResource(name, rename=UNITS, unit=GIB)
    resource = only_resource(offer(node, entry, strategy=MEMORY_UNITS, mig="mixed"))
    assert list(counts(resource).values()) == [9, 9]


def test_limit_below_a_cuda_context_is_a_warning() -> None:
    found = offer(T4, SharedResource(GPU, 48, memory=200 * MIB))
    assert found.warnings == (
        (
            f"{GPU}: 48 replicas of Tesla T4 have a limit of 200 MiB of memory each, and a CUDA "
            "context alone takes 256 MiB: programs cannot start"
        ),
    )


def test_mps_has_fair_shares_by_default() -> None:
    """NVIDIA's plugin has them, too; configured limits leave the reserve free."""
    assert mebibytes(only_resource(offer(T4, SharedResource(GPU, 4), strategy=MPS))) == {
        SMALL: (3840, 3840)
    }
    fair = SharedResource(GPU, 4, memory="fair")
    assert mebibytes(only_resource(offer(T4, fair, strategy=MPS))) == {SMALL: (3776, 3776)}
    none = SharedResource(GPU, 4, memory="none")
    assert only_resource(offer(T4, none, strategy=MPS)).memory == {}
    with refused("GH1847"):
        offer(T4, SharedResource(GPU, 4, memory=4 * GIB), strategy=MPS)
    assert only_resource(offer(T4, SharedResource(GPU, 1), strategy=MPS)).memory == {}


def test_memory_units_fill_the_memory() -> None:
    found = offer(MIXED, memory_units(GIB), strategy=MEMORY_UNITS)
    resource = only_resource(found)
    assert (resource.name, resource.sharing) == (UNITS, MEMORY_UNITS)
    assert counts(resource) == {SMALL: 14, LARGE: 79}
    assert ids(found)[UNITS][:2] == [f"{SMALL}::0", f"{SMALL}::1"]
    assert resource.memory == dict.fromkeys((SMALL, LARGE), UnitMemory(GIB, GIB, is_asked=True))
    assert found.warnings == ()  # neither their number nor their size has a warning
    one_unit = only_resource(offer(T4, memory_units(10 * GIB), strategy=MEMORY_UNITS))
    assert [unit.id for unit in one_unit.units] == [f"{SMALL}::0"]


def test_memory_units_before_pascal_are_a_warning() -> None:
    old = changed(T4, 0, compute_capability="5.2")
    (text,) = offer(old, memory_units(GIB), strategy=MEMORY_UNITS).warnings
    assert text.endswith("blocks the others on its memory units")


def test_several_memory_units_are_never_refused() -> None:
    found = offer(T4, memory_units(GIB), strategy=MEMORY_UNITS, refuses=True)
    assert not only_resource(found).refuses_more_than_one


def test_gpu_smaller_than_a_unit_is_not_offered() -> None:
    found = offer(MIXED, memory_units(20 * GIB), strategy=MEMORY_UNITS)
    assert counts(only_resource(found)) == {LARGE: 3}
    assert "are less than a unit of 20480 MiB" in found.warnings[0]


def test_units_of_one_mebibyte_are_possible() -> None:
    found = offer(
        changed(T4, 0, memory_bytes=24_256 * MIB), memory_units(MIB), strategy=MEMORY_UNITS
    )
    assert counts(only_resource(found)) == {SMALL: 24_000}


def test_too_many_units_are_refused_with_the_smallest_possible_unit() -> None:
    with refused("GH1848") as caught:
        offer(H100, memory_units(MIB), strategy=MEMORY_UNITS)
    message = caught.value.message
    assert message.startswith(
        f"sharing.memoryUnits.resources[0]: cannot offer {UNITS} in memory units: 650424 "
        "units of 1 MiB do not fit into the 4 MiB that the kubelet accepts; the smallest "
        "possible unit is "
    )
    smallest = int(message.split()[-2])
    resource = only_resource(offer(H100, memory_units(smallest * MIB), strategy=MEMORY_UNITS))
    assert sum(len(unit.id) + 16 for unit in resource.units) <= MAX_MESSAGE
    with pytest.raises(FileError, match=f"smallest possible unit is {smallest} MiB"):
        offer(H100, memory_units((smallest - 1) * MIB), strategy=MEMORY_UNITS)


def test_units_of_a_resource_must_have_one_size() -> None:
    two = (memory_units(GIB, devices=("0",)), memory_units(2 * GIB, devices=("1",)))
    with pytest.raises(FileError, match="1 GiB and 2 GiB: they must have one"):
        offer(MIXED, *two, strategy=MEMORY_UNITS)
    with pytest.raises(FileError, match="at least 1 MiB"):
        offer(T4, memory_units(MIB - 1), strategy=MEMORY_UNITS)


def test_whole_gpu_is_never_offered_as_a_memory_unit() -> None:
    entry = SharedResource(GPU, unit=GIB, rename=GPU, devices=("0",))
    found = offer(MIXED, entry, strategy=MEMORY_UNITS)
    assert counts(only_resource(found)) == {SMALL: 14}
    assert found.warnings == (
        (
            f"{GPU}: device 1 (NVIDIA H100 80GB HBM3) is not offered: no entry of "
            "sharing.memoryUnits selects it, and the other devices with that name are memory units"
        ),
    )
    apart = offer(MIXED, memory_units(GIB, devices=("0",)), strategy=MEMORY_UNITS)
    assert {r.name: (r.sharing, len(r.units)) for r in apart.resources} == {
        GPU: ("none", 1),
        UNITS: (MEMORY_UNITS, 14),
    }


def test_entry_for_an_unknown_resource_is_a_warning() -> None:
    entry = SharedResource("nvidia.com/gpuu", unit=GIB, rename=UNITS)
    (text,) = offer(T4, entry, strategy=MEMORY_UNITS).warnings
    assert text.startswith("sharing.memoryUnits.resources[0]: this node has no resource")
