# SPDX-License-Identifier: Apache-2.0
"""The division of devices into slices, and the changes from one layout to another."""

from __future__ import annotations

import pytest

from gpuhook.dra.pool.pool_device import Capacity, Pool, Taint
from gpuhook.dra.slices import slice_document
from gpuhook.dra.slices.server_features import ServerFeatures
from gpuhook.dra.slices.slice_layout import slice_specs
from gpuhook.dra.slices.slice_plan import SliceLayout, SlicePlan, StoredSlice
from tests.cluster_api.object_kinds import Object
from tests.unit.dra.pools import device, pool_of, shared_device

NEW, OLD = ServerFeatures(minor=36), ServerFeatures(minor=34)
TAINT = Taint("gpu.nvidia.com/xid")


def sizes(pool: Pool, features: ServerFeatures = NEW) -> list[int]:
    """Return the number of devices of each slice."""
    return [len(spec.get("devices", ())) for spec in slice_specs(pool, features)]


def tainted(count: int, *numbers: int) -> Pool:
    """Return a pool in which the devices of these numbers have a taint."""
    return pool_of(*(device(n, taints=(TAINT,) if n in numbers else ()) for n in range(count)))


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        (tainted(0), [0]),
        (tainted(1), [1]),
        (tainted(128), [128]),
        (tainted(129), [128, 1]),
        (tainted(300), [128, 128, 44]),
        (tainted(64, 0), [64]),
        (tainted(65, 0), [64, 1]),
        (tainted(65, 64), [64, 1]),
        (tainted(128, 127), [127, 1]),
        (tainted(200, 100), [100, 64, 36]),
    ],
)
def test_devices_of_a_slice(pool: Pool, expected: list[int]) -> None:
    assert sizes(pool) == expected


def sets(count: int, counters: int = 10) -> dict[str, dict[str, int]]:
    return {f"set-{n:02}": {f"c{m}": 7 for m in range(counters)} for n in range(count)}


def partitioned(count: int, each: int = 7) -> Pool:
    """Return a pool of parts of GPUs; each GPU has a shared part without counters, the third."""
    devices = [
        shared_device(100 * gpu + part)
        if part == 2
        else device(100 * gpu + part, counters={f"set-{gpu:02}": {"c1": 1}})
        for gpu in range(count)
        for part in range(each)
    ]
    return pool_of(*devices, counter_sets=sets(count))


def test_eight_counter_sets_of_a_slice() -> None:
    specs = slice_specs(partitioned(17), NEW)
    assert [len(spec.get("sharedCounters", ())) for spec in specs] == [8, 8, 1, 0, 0]
    assert [len(spec.get("devices", ())) for spec in specs] == [0, 0, 0, 64, 55]


def test_counters_of_1_34_are_once_and_with_all_of_their_devices() -> None:
    """A slice of 1.34 has at most 32 counters in all: three sets of ten."""
    specs = slice_specs(partitioned(16), OLD)
    names = [one["name"] for spec in specs for one in spec.get("sharedCounters", ())]
    assert names == [f"set-{n:02}" for n in range(16)]
    for spec in specs:
        own = {one["name"] for one in spec.get("sharedCounters", ())}
        used = {c["counterSet"] for d in spec["devices"] for c in d.get("consumesCounters", ())}
        assert used == own
        assert len(own) <= 3
    assert sum(len(spec["devices"]) for spec in specs) == 16 * 7


def test_fields_of_a_device() -> None:
    memory = Capacity(80 << 30, 20 << 30, 1 << 20, 1 << 20, 40 << 30)
    one = device(capacity={"memory": memory}, taints=(TAINT,), is_shared=True)
    found = slice_document.device_document(one)
    limits = {"min": "1Mi", "step": "1Mi", "max": "40Gi"}
    policy = {"default": "20Gi", "validRange": limits}
    assert found["capacity"] == {"memory": {"value": "80Gi", "requestPolicy": policy}}
    assert found["taints"] == [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}]
    assert slice_document.device_document(device(attributes={})) == {"name": "gpu-0"}


def test_fields_of_v1beta1_are_below_basic() -> None:
    spec = slice_specs(tainted(2), NEW)[0]
    wired = slice_document.wire_spec(spec, "v1beta1")
    assert [set(one) for one in wired["devices"]] == [{"name", "basic"}] * 2
    assert slice_document.stored_spec(wired, "v1beta1") == spec
    assert slice_document.wire_spec(spec, "v1") == spec


def stored(name: str, spec: Object, generation: int, count: int, uid: str = "") -> StoredSlice:
    pool = {**spec["pool"], "generation": generation, "resourceSliceCount": count}
    metadata = {"name": name, "uid": uid or name, "resourceVersion": "1"}
    return StoredSlice(metadata, {**spec, "pool": pool})


def planned(pool: Pool, *slices: StoredSlice, generation: int = 0) -> SlicePlan:
    specs = slice_specs(pool, NEW)
    return SliceLayout(specs, lambda one, spec: one.spec == spec, generation).plan(slices)


def whole(pool: Pool, generation: int = 1) -> list[StoredSlice]:
    """Return the stored slices of a pool."""
    specs = slice_specs(pool, NEW)
    return [
        stored(f"{n:05x}-gpu-x{n}", spec, generation, len(specs)) for n, spec in enumerate(specs)
    ]


def test_equal_slices_need_no_change() -> None:
    pool = tainted(300)
    assert planned(pool, *whole(pool)).is_empty
    assert planned(pool, *reversed(whole(pool, 7))).is_empty


def test_an_unknown_name_is_replaced() -> None:
    """The names order the devices for the scheduler."""
    pool = tainted(2)
    [one] = whole(pool)
    plan = planned(pool, StoredSlice({**one.metadata, "name": "made-by-hand"}, one.spec))
    assert [slice_.name for slice_ in plan.deletes] == ["made-by-hand"]
    assert [number for number, _ in plan.creates] == [0]
    assert plan.generation == 2


def test_a_second_slice_of_a_number_is_deleted_alone() -> None:
    pool = tainted(2)
    [one] = whole(pool)
    second = StoredSlice({**one.metadata, "name": "00000-gpu-x1", "uid": "second"}, one.spec)
    plan = planned(pool, second, one)
    assert [slice_.uid for slice_ in plan.deletes] == ["second"]
    assert (plan.updates, plan.creates) == ((), ())


def test_slices_of_an_earlier_generation_are_obsolete() -> None:
    pool = tainted(300)
    rest = [stored("00001-old", slice_specs(pool, NEW)[1], 3, 3)]
    plan = planned(pool, *whole(pool, 4), *rest)
    assert [one.name for one in plan.deletes] == ["00001-old"]
    assert plan.generation == 4
    assert plan.updates == ()


def test_generations_in_pieces_are_written_again() -> None:
    pool = tainted(300)
    first, second, third = whole(pool, 4)
    older = stored(second.name, slice_specs(pool, NEW)[1], 3, 3)
    for slices in ([first, older, third], [first, third]):
        plan = planned(pool, *slices)
        assert plan.generation == 5
        assert len(plan.updates) + len(plan.creates) == 3


def test_a_generation_never_goes_back() -> None:
    assert planned(tainted(1), generation=6).generation == 7


def test_slices_without_readable_fields_are_deleted() -> None:
    broken = StoredSlice({"name": "00000-x", "uid": "u"}, {"pool": "no"})
    plan = planned(tainted(1), broken)
    assert plan.deletes == (broken,)
    assert plan.generation == 1
