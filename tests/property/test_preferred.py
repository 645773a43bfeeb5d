# SPDX-License-Identifier: Apache-2.0
"""Properties of preferred allocation, compared with brute force for up to eight GPUs."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuhook.device_plugin.offer import prefer_linked
from gpuhook.device_plugin.offer.offered_devices import Resource
from gpuhook.device_plugin.offer.preferred_allocation import preferred
from gpuhook.errors import RequestError
from tests.unit.choosing import NO_LINKS, Table, best_by_force, ids, mig, shared, whole

POLICY = st.sampled_from(["distributed", "packed"])
NUMA = st.sampled_from([None, 0, 1])
SHARED = st.one_of(
    st.lists(st.integers(1, 6), min_size=1, max_size=6).map(lambda counts: shared(*counts)),
    st.builds(
        lambda parts, replicas: mig(*parts, replicas=replicas),
        st.lists(st.integers(1, 7), min_size=1, max_size=4),
        st.integers(1, 3),
    ),
)


@st.composite
def machines(draw: st.DrawFn, most: int = 8) -> tuple[Resource, Table]:
    """Return whole GPUs with random links, often of few levels, so that there are ties."""
    count = draw(st.integers(1, most))
    level = draw(st.sampled_from([1, 3, 1860]))
    pairs = list(combinations(range(count), 2))
    scores = draw(st.lists(st.integers(0, level), min_size=len(pairs), max_size=len(pairs)))
    numa = draw(st.lists(NUMA, min_size=count, max_size=count))
    return whole(count, tuple(numa)), Table(dict(zip(pairs, scores, strict=True)))


@st.composite
def questions(draw: st.DrawFn, resource: Resource) -> tuple[list[str], list[str], int]:
    """Return (available, must include, size) of a valid request."""
    available = draw(st.lists(st.sampled_from(ids(resource)), unique=True, min_size=1))
    required = draw(st.lists(st.sampled_from(available), unique=True, max_size=3))
    return available, required, draw(st.integers(len(required), len(available)))


def _score(resource: Resource, chosen: list[str], links: Table) -> int:
    uuids = [unit.device.uuid for unit in resource.units if unit.id in chosen]
    return sum(links.score(*pair) for pair in combinations(uuids, 2))


@given(st.data(), machines())
def test_chosen_gpus_are_the_best_set(data: st.DataObject, machine: tuple[Resource, Table]) -> None:
    resource, links = machine
    available, required, size = data.draw(questions(resource))
    chosen = preferred(resource, available, required, size, policy="distributed", topology=links)
    assert chosen == best_by_force(resource, available, required, size, links)


@settings(max_examples=50)
@given(st.data(), machines())
def test_chosen_set_of_many_gpus_is_valid(
    data: st.DataObject, machine: tuple[Resource, Table]
) -> None:
    # One GPU or a pair is also the best choice.
    small, links = machine
    resource = whole(prefer_linked.EXACT + len(small.units))
    available, required, size = data.draw(questions(resource))
    chosen = preferred(resource, available, required, size, policy="distributed", topology=links)
    assert len(set(chosen)) == size
    assert set(required) <= set(chosen) <= set(available)
    if size <= 2 and len(available) > prefer_linked.EXACT:
        best = best_by_force(resource, available, required, size, links)
        assert _score(resource, chosen, links) == _score(resource, best, links)


@given(st.data(), SHARED, POLICY)
def test_chosen_units_are_available_and_ordered(
    data: st.DataObject, resource: Resource, policy: str
) -> None:
    available, required, size = data.draw(questions(resource))
    chosen = preferred(resource, available, required, size, policy=policy, topology=NO_LINKS)
    assert len(set(chosen)) == len(chosen) == size
    assert set(required) <= set(chosen) <= set(available)
    assert chosen == [name for name in ids(resource) if name in chosen]
    shuffled = data.draw(st.permutations(available))
    again = preferred(resource, shuffled, required[::-1], size, policy=policy, topology=NO_LINKS)
    assert again == chosen


@given(st.data(), SHARED, POLICY)
def test_chosen_units_are_on_as_many_gpus_as_possible(
    data: st.DataObject, resource: Resource, policy: str
) -> None:
    available, required, size = data.draw(questions(resource))
    chosen = preferred(resource, available, required, size, policy=policy, topology=NO_LINKS)
    gpu = {unit.id: unit.device.gpu for unit in resource.units}
    fixed = {gpu[name] for name in required}
    others = {gpu[name] for name in available} - fixed
    possible = len(fixed) + min(len(others), size - len(required))
    assert len({gpu[name] for name in chosen}) == possible


@given(st.data(), SHARED, POLICY)
def test_policy_selects_the_gpu_of_one_unit(
    data: st.DataObject, resource: Resource, policy: str
) -> None:
    available, _, _ = data.draw(questions(resource))
    (chosen,) = preferred(resource, available, [], 1, policy=policy, topology=NO_LINKS)
    parts = {}
    for gpu in {unit.device.gpu for unit in resource.units}:
        units = [unit.id for unit in resource.units if unit.device.gpu == gpu]
        free = [name for name in units if name in available]
        if free:
            parts[gpu] = 1 - len(free) / len(units)
    own = next(unit.device.gpu for unit in resource.units if unit.id == chosen)
    wanted = min(parts.values()) if policy == "distributed" else max(parts.values())
    assert abs(parts[own] - wanted) < 1e-9


@given(
    SHARED | machines().map(lambda machine: machine[0]),
    st.data(),
    st.integers(-(2**31), 2**31 - 1),
    POLICY | st.text(max_size=3),
)
def test_any_request_is_answered_or_refused(
    resource: Resource, data: st.DataObject, size: int, policy: str
) -> None:
    names = st.lists(st.sampled_from(ids(resource)) | st.text(max_size=5), max_size=12)
    size = data.draw(st.integers(-2, 12) | st.just(size))
    try:
        chosen = preferred(
            resource, data.draw(names), data.draw(names), size, policy=policy, topology=NO_LINKS
        )
    except RequestError:
        return
    assert len(chosen) == size
