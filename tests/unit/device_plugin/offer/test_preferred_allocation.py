# SPDX-License-Identifier: Apache-2.0
"""The preferred units for the kubelet."""

from __future__ import annotations

from collections import Counter

import pytest

from gpuhook.device_plugin.config.sharing_section import SharedResource
from gpuhook.device_plugin.offer import prefer_linked
from gpuhook.device_plugin.offer.offered_devices import Resource
from gpuhook.device_plugin.offer.preferred_allocation import preferred, prepare
from gpuhook.errors import RequestError
from tests.unit import offering
from tests.unit.choosing import NO_LINKS, Table, ids, mig, shared, taken, whole

# Eight GPUs in two halves: NVLink pairs, then one PCIe switch for four, then the others.
PAIRS = {(0, 1): 250, (2, 3): 250, (4, 5): 250, (6, 7): 250}
HALVES = {(a, b): 50 for half in (0, 4) for a in range(half, half + 4) for b in range(half, a)}
EIGHT = Table({**HALVES, **PAIRS}, other=10)


def choose(
    resource: Resource,
    available: list[str] | None = None,
    required: list[str] | None = None,
    size: int = 1,
    policy: str = "distributed",
    links: Table = NO_LINKS,
    unhealthy: tuple[str, ...] = (),
) -> str:
    """Return the preferred ids without "GPU-", such as "0::1 2::0"."""
    chosen = preferred(
        resource,
        ids(resource) if available is None else available,
        required or [],
        size,
        policy=policy,
        topology=links,
        unhealthy=unhealthy,
    )
    return " ".join(name.partition("-")[2] for name in chosen)


@pytest.mark.parametrize(
    ("free", "required", "size", "chosen"),
    [
        ("01234567", "", 0, ""),
        ("01234567", "", 1, "0"),
        ("01234567", "", 2, "0 1"),
        ("01234567", "", 4, "0 1 2 3"),
        ("01234567", "", 8, "0 1 2 3 4 5 6 7"),
        ("12345", "", 2, "4 5"),  # the remaining ones are of one half
        ("1267", "", 1, "1"),
        ("0167", "", 1, "0"),
        ("12367", "", 1, "1"),  # no pair is split
        ("2367", "7", 2, "6 7"),
        ("01367", "3", 3, "0 1 3"),
        ("03467", "", 2, "6 7"),
        ("1357", "", 2, "1 3"),  # no complete pair: at least one switch
    ],
)
def test_whole_gpus_are_chosen_by_their_links(
    free: str, required: str, size: int, chosen: str
) -> None:
    available = [f"GPU-{index}" for index in free]
    fixed = [f"GPU-{index}" for index in required]
    assert choose(whole(8), available, fixed, size, links=EIGHT) == chosen


def test_remaining_gpus_keep_their_links() -> None:
    # 0-1, 1-2 and 2-3 are equal; the middle pair would leave no pair.
    chain = Table({(0, 1): 5, (1, 2): 5, (2, 3): 5})
    assert choose(whole(4), size=2, links=chain) == "0 1"
    chain = Table({(3, 0): 5, (0, 1): 5, (1, 2): 5})
    assert choose(whole(4), size=2, links=chain) == "0 3"
    # One GPU: the one without a link.
    assert choose(whole(4), size=1, links=Table({(0, 1): 5, (0, 2): 5, (1, 2): 5})) == "3"


def test_equal_links_are_decided_by_numa_nodes() -> None:
    resource = whole(8, (0, 0, 0, 0, 1, 1, 1, 1))
    switch = Table(other=118)
    assert choose(resource, size=4, links=switch) == "0 1 2 3"
    free = [f"GPU-{index}" for index in (0, 1, 2, 4, 5, 6, 7)]
    assert choose(resource, free, size=4, links=switch) == "4 5 6 7"
    assert choose(resource, free, size=2, links=switch) == "0 1"  # leaves four on one node
    assert choose(resource, free, ["GPU-6"], 3, links=switch) == "4 5 6"
    better = Table({(0, 4): 119}, other=118)
    assert choose(resource, size=2, links=better) == "0 4"


def test_gpu_without_links_can_be_chosen() -> None:
    links = Table({pair: score for pair, score in PAIRS.items() if 0 not in pair}, other=0)
    assert choose(whole(8), size=1, links=links) == "0"
    assert choose(whole(8), size=8, links=links) == "0 1 2 3 4 5 6 7"


def test_sixteen_gpus_are_chosen_exactly() -> None:
    pairs = Table({(index, 15 - index): 100 for index in range(8)}, other=1)
    resource = whole(16)
    prepare(resource, pairs)
    assert choose(resource, size=2, links=pairs) == "0 15"
    free = [name for name in ids(resource) if name not in ("GPU-0", "GPU-3")]
    assert choose(resource, free, size=4, links=pairs) == "1 2 13 14"
    assert choose(resource, free, ["GPU-15"], 3, links=pairs) == "1 14 15"


def test_link_tables_are_computed_once() -> None:
    resource = whole(12)
    links = Table({(2, 7): 31}, other=3)
    prepare(resource, links)
    sums, masks = prefer_linked._sums.cache_info(), prefer_linked._masks.cache_info()
    assert choose(resource, size=2, links=links) == "2 7"
    assert choose(resource, size=3, links=links) == "0 2 7"
    assert prefer_linked._sums.cache_info().misses == sums.misses
    assert prefer_linked._masks.cache_info().misses == masks.misses
    links = Table({(2, 8): 31}, other=3)
    assert choose(resource, size=2, links=links) == "2 8"


def test_request_for_no_gpu_has_no_preferred_units() -> None:
    assert choose(whole(8), size=0) == ""
    assert choose(whole(17), size=0) == ""


def test_sets_of_many_gpus_grow_from_the_best_links() -> None:
    pairs = Table({(index, 19 - index): 100 for index in range(10)}, other=1)
    resource = whole(20, tuple(index % 2 for index in range(20)))
    assert choose(resource, size=2, links=pairs) == "0 19"
    assert choose(resource, size=4, links=pairs) == "0 1 18 19"
    assert choose(resource, None, ["GPU-4"], 2, links=pairs) == "4 15"
    few = [f"GPU-{index}" for index in (1, 4, 5, 15)]
    assert choose(resource, few, size=2, links=pairs) == "4 15"
    assert choose(resource, size=20, links=pairs) == " ".join(map(str, range(20)))
    assert choose(resource, size=2) == "0 2"


def test_sets_of_many_gpus_leave_linked_gpus() -> None:
    # All except 7 are linked with 3: 7 is the best single GPU, and the best second one with 12.
    links = Table({(3, index): 5 for index in range(20) if index not in (3, 7)})
    assert choose(whole(20), size=1, links=links) == "7"
    assert choose(whole(20), None, ["GPU-12"], 2, links=Table({(0, 1): 5})) == "2 12"


@pytest.mark.parametrize(
    ("used", "size", "distributed", "packed"),
    [
        ((0, 0), 1, "0::0", "0::0"),
        ((0, 0), 2, "0::0 1::0", "0::0 1::0"),
        ((1, 0), 1, "1::0", "0::1"),
        ((0, 2), 1, "0::0", "1::2"),
        ((0, 2), 2, "0::0 1::2", "0::0 1::2"),  # both on one GPU with NVIDIA's plugin
        ((0, 3), 2, "0::0 1::3", "0::0 1::3"),
        ((0, 3), 3, "0::0 0::1 1::3", "0::0 0::1 1::3"),
        ((0, 4), 2, "0::0 0::1", "0::0 0::1"),
        ((1, 3), 4, "0::1 0::2 0::3 1::3", "0::1 0::2 0::3 1::3"),
        ((0, 2), 3, "0::0 0::1 1::2", "0::0 1::2 1::3"),
        ((3, 4), 1, "0::3", "0::3"),
    ],
)
def test_replicas_of_one_request_are_on_distinct_gpus(
    used: tuple[int, int], size: int, distributed: str, packed: str
) -> None:
    resource = shared(4, 4)
    free = taken(resource, *used)
    assert choose(resource, free, size=size) == distributed
    assert choose(resource, free, size=size, policy="packed") == packed


def test_required_units_count_as_chosen() -> None:
    resource = shared(4, 4)
    free = taken(resource, 1, 3)
    for policy in ("distributed", "packed"):
        assert choose(resource, free, ["GPU-0::2"], 2, policy) == "0::2 1::3"
        assert choose(resource, free, ["GPU-0::2", "GPU-1::3"], 2, policy) == "0::2 1::3"
    # The required unit may be missing in `available`.
    assert choose(resource, ["GPU-1::0"], ["GPU-0::3"], 2) == "0::3 1::0"


def test_gpus_are_compared_by_the_fraction_of_used_replicas() -> None:
    resource = shared(4, 2)
    assert choose(resource, taken(resource, 1, 1), size=1) == "0::1"
    assert choose(resource, taken(resource, 1, 1), size=1, policy="packed") == "1::1"
    assert choose(resource, taken(resource, 2, 1), size=1) == "0::2"
    assert choose(shared(2, 8), size=3) == "0::0 1::0 1::1"  # one of two, two of eight


def test_instances_are_chosen_on_distinct_gpus_then_by_load() -> None:
    resource = mig(3, 3)
    assert choose(resource, size=2) == "0-0 1-0"
    assert choose(resource, taken(resource, 2, 1), size=1) == "1-1"
    assert choose(resource, taken(resource, 2, 1), size=1, policy="packed") == "0-2"
    assert choose(resource, taken(resource, 0, 3), size=2) == "0-0 0-1"


def test_replicas_of_instances_are_chosen_on_distinct_instances() -> None:
    resource = mig(2, replicas=2)
    assert choose(resource, size=2) == "0-0::0 0-1::0"
    free = taken(resource, 1)
    assert choose(resource, free, size=1) == "0-1::0"
    assert choose(resource, free, size=1, policy="packed") == "0-0::1"
    assert choose(resource, free, size=2, policy="packed") == "0-0::1 0-1::0"
    assert choose(resource, None, ["MIG-0-0::0"], 2) == "0-0::0 0-1::0"


def test_ten_containers_are_distributed_over_four_gpus() -> None:
    node = offering.with_gpus(offering.H100, *offering.H100.gpus[:4])
    (resource,) = offering.offer(node, SharedResource("nvidia.com/gpu", 3)).resources
    gpus = {unit.id: unit.device.index for unit in resource.units}
    free = ids(resource)
    assert len(free) == 12
    seats = []
    for _ in range(10):
        (seat,) = preferred(resource, free, [], 1, policy="distributed", topology=NO_LINKS)
        free.remove(seat)
        seats.append(gpus[seat])
    assert seats == ["0", "1", "2", "3", "0", "1", "2", "3", "0", "1"]
    # A container that requests two gets two GPUs, those with the most free units.
    two = preferred(resource, free, [], 2, policy="distributed", topology=NO_LINKS)
    assert [gpus[seat] for seat in two] == ["2", "3"]


def test_packed_fills_one_gpu_after_another() -> None:
    resource = shared(3, 3)
    free = ids(resource)
    order = []
    for _ in range(6):
        (unit,) = preferred(resource, free, [], 1, policy="packed", topology=NO_LINKS)
        free.remove(unit)
        order.append(unit)
    assert order == ids(resource)


def test_two_containers_share_the_only_gpu() -> None:
    resource = shared(2)
    first = choose(resource)
    assert (first, choose(resource, ["GPU-0::1"])) == ("0::0", "0::1")


def test_unhealthy_devices_are_chosen_last() -> None:
    resource = shared(2, 2)
    assert choose(resource, unhealthy=("GPU-0",)) == "1::0"
    assert choose(resource, size=3, unhealthy=("GPU-0",)) == "0::0 0::1 1::0"
    assert choose(resource, None, ["GPU-0::1"], 2, unhealthy=("GPU-0",)) == "0::1 1::0"
    gpus = whole(4)
    assert choose(gpus, size=2, links=Table({(0, 1): 9}), unhealthy=("GPU-1",)) == "0 2"
    assert choose(gpus, None, ["GPU-1"], 2, unhealthy=("GPU-1",)) == "0 1"
    # Units of an unhealthy device are not in use: those of instance 0:0 are ignored.
    parts = mig(2, 2)
    broken = ["MIG-0-1", "MIG-1-0", "MIG-1-1"]
    assert choose(parts, broken, unhealthy=("MIG-0-0",)) == "0-1"
    assert choose(parts, broken) == "1-0"


@pytest.mark.parametrize("resource", [whole(4), shared(2, 2), mig(2, 2)])
def test_malformed_request_is_refused_with_a_reason(resource: Resource) -> None:
    names = ids(resource)

    def ask(available: list[str], required: list[str], size: int, reason: str = "") -> str:
        with pytest.raises(RequestError) as raised:
            choose(resource, available, required, size)
        assert raised.value.message.startswith(resource.name)
        assert raised.value.message.endswith(reason)
        return raised.value.code

    assert ask(names, ["GPU-9"], 1) == "GH1843"
    assert ask(names, [""], 1) == "GH1843"
    assert ask([*names, names[1]], [], 1, "is twice in available") == "GH1844"
    assert ask(names, [names[0]] * 2, 2, "is twice in must_include") == "GH1844"
    assert ask(names, names[:2], 1, "an allocation of 1 must include 2") == "GH1844"
    assert ask(names, [], -1, "an allocation of -1 must include 0") == "GH1844"
    assert ask(names, [], 5) == "GH1846"
    assert ask([], [], 1) == "GH1846"
    assert ask([names[0], "GPU-9"], [], 2) == "GH1846"


def test_ids_of_an_older_list_are_accepted() -> None:
    assert choose(shared(2), ["GPU-0::7", "GPU-0::1", "\x00"]) == "0::1"


def test_order_of_the_request_has_no_effect() -> None:
    resource = shared(4, 4, 4)
    free = taken(resource, 1, 0, 2)
    assert choose(resource, free, size=5) == choose(resource, free[::-1], size=5)
    chosen = choose(whole(8), ids(whole(8))[::-1], size=3, links=EIGHT)
    assert chosen == choose(whole(8), size=3, links=EIGHT)


def test_shared_and_whole_gpus_are_chosen_by_use() -> None:
    resource = Resource(
        "nvidia.com/gpu", (*shared(2).units, *whole(3).units[1:]), sharing="time-slicing"
    )
    free = taken(resource, 1, 0, 0)
    assert choose(resource, free) == "1"
    assert choose(resource, free, size=3) == "0::1 1 2"


def test_more_replicas_than_gpus_are_distributed_evenly() -> None:
    resource = shared(8, 8, 8)
    chosen = choose(resource, taken(resource, 4, 0, 2), size=7).split()
    assert Counter(name[0] for name in chosen) == {"0": 2, "1": 3, "2": 2}


@pytest.mark.parametrize("count", [1, 16, 17, 20])
def test_size_0_has_no_preferred_units(count: int) -> None:
    assert choose(whole(count), size=0) == ""
