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


def units(unit: int, **more: object) -> SharedResource:
    return SharedResource(GPU, rename=UNITS, unit=unit, **more)  # type: ignore[arg-type]


def one(offer: Offer) -> Resource:
    (resource,) = offer.resources
    return resource


def mebibytes(resource: Resource) -> dict[str, tuple[int, int]]:
    return {uuid: (m.hard // MIB, m.soft // MIB) for uuid, m in resource.memory.items()}


def counts(resource: Resource) -> dict[str, int]:
    return {uuid: len(found) for uuid, found in resource.index.ids.items()}


def test_time_slices_have_no_limit_unless_one_is_configured() -> None:
    entry = SharedResource(GPU, 4)
    resource = one(offer(T4, entry))
    assert resource.memory == {}
    assert resource.entries == {T4.gpus[0].uuid: entry}
    assert one(offer(T4, SharedResource(GPU, 4, memory="none"))).memory == {}
    assert one(offer(T4)).entries == {}


def test_fair_shares_are_of_each_card_less_the_reserve() -> None:
    resource = one(offer(MIXED, SharedResource(GPU, 4, memory="fair")))
    assert mebibytes(resource) == {SMALL: (3776, 3776), LARGE: (20325, 20325)}
    assert not any(memory.is_asked for memory in resource.memory.values())


def test_reserve_is_configured() -> None:
    configuration = configured(SharedResource(GPU, 4, memory="fair"))
    own = replace(configuration.own, memory_reserve=0)
    resource = one(offered(T4, replace(configuration, own=own)))
    assert mebibytes(resource) == {SMALL: (3840, 3840)}


def test_quantity_is_a_limit_of_which_the_fair_share_is_guaranteed() -> None:
    resource = one(offer(T4, SharedResource(GPU, 4, memory=2 * GIB)))
    assert mebibytes(resource) == {SMALL: (2048, 2048)}
    entry = SharedResource(GPU, 4, memory=8 * GIB, oversubscribe=True)
    assert mebibytes(one(offer(T4, entry))) == {SMALL: (8192, 3776)}


@pytest.mark.parametrize(
    ("entry", "said"),
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
def test_limits_that_exceed_a_card_are_refused_with_the_sum(
    entry: SharedResource, said: str
) -> None:
    """One device that is too small is enough."""
    with refused("GH1847") as caught:
        offer(MIXED, entry)
    assert caught.value.message == f"sharing.timeSlicing.resources[0]: {said}"


def test_replicas_follow_from_memory_for_each_card() -> None:
    resource = one(offer(MIXED, SharedResource(GPU, replica_memory=4 * GIB)))
    assert counts(resource) == {SMALL: 3, LARGE: 19}
    assert mebibytes(resource) == {SMALL: (4096, 4096), LARGE: (4096, 4096)}
    assert resource.sharing == "time-slicing"
    loose = one(offer(MIXED, SharedResource(GPU, replica_memory=4 * GIB, memory="none")))
    assert counts(loose) == {SMALL: 3, LARGE: 19}
    assert loose.memory == {}


def test_one_replica_of_memory_is_a_part_of_its_card() -> None:
    resource = one(offer(T4, SharedResource(GPU, replica_memory=10 * GIB)))
    assert [unit.id for unit in resource.units] == [f"{SMALL}::0"]
    assert mebibytes(resource) == {SMALL: (10240, 10240)}


def test_card_that_holds_no_replica_is_not_offered() -> None:
    found = offer(MIXED, SharedResource(GPU, replica_memory=20 * GIB))
    assert counts(one(found)) == {LARGE: 3}
    assert found.warnings == (
        (
            f"{GPU}: device 0 (Tesla T4) is not offered: its 15360 MiB, less 256 MiB of reserve, "
            "are less than a replica of 20480 MiB"
        ),
    )


def test_memory_that_nobody_knows_gives_no_fair_share() -> None:
    mute = changed(T4, 0, memory_bytes=None)
    found = offer(mute, SharedResource(GPU, 4, memory="fair"))
    assert one(found).memory == {}
    device = "the driver does not report the memory of device 0 (Tesla T4)"
    assert found.warnings == (f"{GPU}: {device}: its replicas have no limit",)
    found = offer(mute, SharedResource(GPU, 4, memory=GIB))
    assert one(found).memory == {SMALL: UnitMemory(GIB, 0)}
    assert found.warnings == (f"{GPU}: {device}: it is unknown whether 4 times 1024 MiB fit",)


@pytest.mark.parametrize("entry", [units(GIB), SharedResource(GPU, replica_memory=GIB)])
def test_memory_that_nobody_knows_cannot_be_counted(entry: SharedResource) -> None:
    mute = changed(T4, 0, memory_bytes=None)
    found = offer(mute, entry, strategy=MEMORY_UNITS if entry.unit else "time-slicing")
    assert found.resources == ()
    (text,) = found.warnings
    assert "not offered: the driver does not report its memory" in text


def test_mig_instances_are_divided_by_their_own_memory() -> None:
    node = divided(T4, 0, "1g.10gb", "1g.10gb")
    name = "nvidia.com/mig-1g.10gb"
    resource = one(offer(node, SharedResource(name, 3, memory="fair"), mig="mixed"))
    assert set(mebibytes(resource).values()) == {(3328, 3328)}
    entry = SharedResource(name, rename=UNITS, unit=GIB)
    resource = one(offer(node, entry, strategy=MEMORY_UNITS, mig="mixed"))
    assert list(counts(resource).values()) == [9, 9]


def test_little_memory_for_a_context_is_warned_about() -> None:
    found = offer(T4, SharedResource(GPU, 48, memory=200 * MIB))
    assert found.warnings == (
        (
            f"{GPU}: 48 replicas of Tesla T4 have a limit of 200 MiB of memory each, and a CUDA "
            "context alone takes 256 MiB: programs cannot start"
        ),
    )


def test_mps_has_fair_shares_by_itself() -> None:
    """The default is that of NVIDIA's plugin; configured limits leave the reserve free."""
    assert mebibytes(one(offer(T4, SharedResource(GPU, 4), strategy=MPS))) == {SMALL: (3840, 3840)}
    fair = SharedResource(GPU, 4, memory="fair")
    assert mebibytes(one(offer(T4, fair, strategy=MPS))) == {SMALL: (3776, 3776)}
    none = SharedResource(GPU, 4, memory="none")
    assert one(offer(T4, none, strategy=MPS)).memory == {}
    with refused("GH1847"):
        offer(T4, SharedResource(GPU, 4, memory=4 * GIB), strategy=MPS)
    assert one(offer(T4, SharedResource(GPU, 1), strategy=MPS)).memory == {}


def test_memory_units_are_as_many_as_fit() -> None:
    found = offer(MIXED, units(GIB), strategy=MEMORY_UNITS)
    resource = one(found)
    assert (resource.name, resource.sharing) == (UNITS, MEMORY_UNITS)
    assert counts(resource) == {SMALL: 14, LARGE: 79}
    assert ids(found)[UNITS][:2] == [f"{SMALL}::0", f"{SMALL}::1"]
    assert resource.memory == dict.fromkeys((SMALL, LARGE), UnitMemory(GIB, GIB, is_asked=True))
    assert found.warnings == ()  # neither their number nor their size has a warning
    one_unit = one(offer(T4, units(10 * GIB), strategy=MEMORY_UNITS))
    assert [unit.id for unit in one_unit.units] == [f"{SMALL}::0"]


def test_memory_units_of_a_card_older_than_pascal_are_doubtful() -> None:
    old = changed(T4, 0, compute_capability="5.2")
    (text,) = offer(old, units(GIB), strategy=MEMORY_UNITS).warnings
    assert text.endswith("blocks the others on its memory units")


def test_more_than_one_memory_unit_is_never_refused() -> None:
    found = offer(T4, units(GIB), strategy=MEMORY_UNITS, refuses=True)
    assert not one(found).refuses_more_than_one


def test_card_smaller_than_a_unit_is_not_offered() -> None:
    found = offer(MIXED, units(20 * GIB), strategy=MEMORY_UNITS)
    assert counts(one(found)) == {LARGE: 3}
    assert "are less than a unit of 20480 MiB" in found.warnings[0]


def test_units_of_a_mebibyte_fit_on_one_card() -> None:
    found = offer(changed(T4, 0, memory_bytes=24_256 * MIB), units(MIB), strategy=MEMORY_UNITS)
    assert counts(one(found)) == {SMALL: 24_000}


def test_too_many_units_are_refused_with_the_smallest_that_fits() -> None:
    with refused("GH1848") as caught:
        offer(H100, units(MIB), strategy=MEMORY_UNITS)
    message = caught.value.message
    assert message.startswith(
        f"sharing.memoryUnits.resources[0]: cannot offer {UNITS} in memory units: 650424 "
        "units of 1 MiB do not fit into the 4 MiB that the kubelet accepts; the smallest "
        "possible unit is "
    )
    smallest = int(message.split()[-2])
    resource = one(offer(H100, units(smallest * MIB), strategy=MEMORY_UNITS))
    assert sum(len(unit.id) + 16 for unit in resource.units) <= MAX_MESSAGE
    with pytest.raises(FileError, match=f"smallest possible unit is {smallest} MiB"):
        offer(H100, units((smallest - 1) * MIB), strategy=MEMORY_UNITS)


def test_units_of_one_resource_are_of_one_size() -> None:
    two = (units(GIB, devices=("0",)), units(2 * GIB, devices=("1",)))
    with pytest.raises(FileError, match="1 GiB and 2 GiB: they must have one"):
        offer(MIXED, *two, strategy=MEMORY_UNITS)
    with pytest.raises(FileError, match="at least 1 MiB"):
        offer(T4, units(MIB - 1), strategy=MEMORY_UNITS)


def test_whole_card_is_never_offered_as_a_unit() -> None:
    entry = SharedResource(GPU, unit=GIB, rename=GPU, devices=("0",))
    found = offer(MIXED, entry, strategy=MEMORY_UNITS)
    assert counts(one(found)) == {SMALL: 14}
    assert found.warnings == (
        (
            f"{GPU}: device 1 (NVIDIA H100 80GB HBM3) is not offered: no entry of "
            "sharing.memoryUnits selects it, and the other devices of that name are memory units"
        ),
    )
    apart = offer(MIXED, units(GIB, devices=("0",)), strategy=MEMORY_UNITS)
    assert {r.name: (r.sharing, len(r.units)) for r in apart.resources} == {
        GPU: ("none", 1),
        UNITS: (MEMORY_UNITS, 14),
    }


def test_entry_of_memory_units_that_means_nothing_is_named() -> None:
    entry = SharedResource("nvidia.com/gpuu", unit=GIB, rename=UNITS)
    (text,) = offer(T4, entry, strategy=MEMORY_UNITS).warnings
    assert text.startswith("sharing.memoryUnits.resources[0]: this node has no resource")
