# SPDX-License-Identifier: Apache-2.0
"""Slices that the API server accepts, whatever a driver reports, and equal for equal hardware."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from gpuhook.dra.pool.node_pool import node_pool
from gpuhook.dra.pool.pool_device import Capacity, Pool, PoolDevice, Taint, Version
from gpuhook.dra.pool.sharing_form import sharing_forms
from gpuhook.dra.slices import slice_layout, slice_limits
from gpuhook.dra.slices.server_features import ServerFeatures
from gpuhook.dra.slices.server_form import server_form, with_times
from gpuhook.dra.slices.slice_plan import SliceLayout
from gpuhook.vendors.catalogue import vendor_of
from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, MigInstance, Node
from gpuhook.vendors.plugin.vendor_device import Device
from tests.cluster_api.object_kinds import Object
from tests.cluster_api.object_store import _complete
from tests.cluster_api.slice_limits import slice_errors
from tests.unit.offering import configured

GATES = sorted(ServerFeatures().gates)
features = st.builds(
    ServerFeatures,
    st.just("v1"),
    st.sampled_from([32, 34, 35, 36, 37]),
    st.frozensets(st.sampled_from(GATES)),
)
texts = st.one_of(st.text(max_size=80), st.just("x" * 70), st.just("é" * 40))
facts = st.one_of(st.none(), texts)
numbers = st.one_of(st.none(), st.integers(0, 2**64))
small = st.one_of(st.none(), st.integers(0, 300))


def instances(uuid: str) -> st.SearchStrategy[tuple[MigInstance, ...]]:
    """Return instances with any facts, also such that overlap."""
    own = st.builds(
        MigInstance,
        index=st.integers(0, 9),
        uuid=st.integers(0, 10**9).map(lambda n: f"MIG-{uuid}-{n}"),
        gpu_instance=st.integers(0, 14),
        compute_instance=st.integers(0, 7),
        profile=st.one_of(facts, st.sampled_from(["1g.5gb", "1c.2g.10gb", "1g.5gb+me.all"])),
        memory_bytes=numbers,
        gpu_slices=small,
        compute_slices=small,
        multiprocessors=small,
        copy_engines=small,
        decoders=small,
        profile_id=small,
        memory_start=st.one_of(st.none(), st.integers(0, 40)),
        memory_slices=st.one_of(st.none(), st.integers(0, 40)),
    )
    return st.lists(own, max_size=8, unique_by=lambda one: one.uuid).map(tuple)


@st.composite
def gpus(draw: st.DrawFn, number: int) -> Gpu:
    uuid = f"GPU-{number:04}"
    is_divided = draw(st.booleans())
    return Gpu(
        index=number,
        uuid=uuid,
        minor=draw(st.one_of(st.none(), st.just(number))),
        pci_bus_id=f"00000000:{number % 256:02X}:{number // 256:02X}.0",
        name=draw(facts),
        brand=draw(facts),
        architecture=draw(facts),
        compute_capability=draw(st.one_of(facts, st.just("9.0"))),
        memory_bytes=draw(numbers),
        numa_node=draw(st.one_of(st.none(), st.integers(-1, 300))),
        mig_mode="enabled" if is_divided else "disabled",
        instances=draw(instances(uuid)) if is_divided else (),
    )


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    count = draw(st.integers(0, 12))
    return Node(
        Driver(version=draw(st.one_of(facts, st.just("580.65.06"))), cuda=draw(facts)),
        tuple(draw(gpus(number)) for number in range(count)),
    )


def node_slices(node: Node, kept: ServerFeatures) -> list[Object]:
    part = vendor_of(node).inventory_part(node)
    pool = node_pool(part, sharing_forms(configured(), node), "node1")
    return checked_slices(pool, kept)


def checked_slices(pool: Pool, kept: ServerFeatures) -> list[Object]:
    """Return the slices of a pool, which the API server of 1.`minor` accepts as they are."""
    whole = with_times(server_form(pool, kept), (), "2026-01-01T00:00:00Z")
    form, refused = slice_limits.within_limits(whole)
    specs = slice_layout.slice_specs(form, kept)
    found = SliceLayout(specs, lambda *_: False).plan([]).creates
    for _, spec in found:
        assert slice_errors(spec, kept.minor or 36) == []
        stored = json.loads(json.dumps({"spec": spec}))
        _complete(stored)
        assert stored["spec"] == spec  # the server returns what it got
    names = [device["name"] for _, spec in found for device in spec.get("devices", ())]
    expected = [one.name for one in form.devices]
    assert names == expected if kept.has_split_counters else sorted(names) == sorted(expected)
    assert len(set(names)) == len(names)
    assert len(found) >= 1
    assert set(names) | set(refused) == {one.name for one in whole.devices}
    return [spec for _, spec in found]


@given(nodes(), features, st.randoms(use_true_random=False))
def test_any_inventory(node: Node, kept: ServerFeatures, order: random.Random) -> None:
    """The order in which a driver lists its GPUs does not matter."""
    found = node_slices(node, kept)
    mixed = list(node.gpus)
    order.shuffle(mixed)
    again = node_slices(replace(node, gpus=tuple(mixed)), kept)
    assert json.dumps(found) == json.dumps(again)


names = st.one_of(
    st.sampled_from(["gpu-0", "a/b", "x" * 33, "", "memory", "Ä", "a-b", "a.b/c", f"{'d' * 64}/e"]),
    st.text(max_size=5),
    st.from_regex(r"[a-z]{1,8}(-[0-9]{1,3})?", fullmatch=True),
)
amounts = st.one_of(st.integers(-5, 40), st.integers(0, 2**40).map(lambda n: n << 20))
capacities = st.builds(Capacity, amounts, amounts, amounts, amounts, amounts)
values = st.one_of(
    st.booleans(),
    st.integers(-(2**64), 2**64),
    texts,
    st.one_of(texts, st.just("1.2.3")).map(Version),
)
taints = st.builds(
    Taint,
    st.one_of(names, st.just("gpu.nvidia.com/xid")),
    st.one_of(texts, st.just("79")),
    st.sampled_from(["None", "NoSchedule", "NoExecute", "Never"]),
    st.just("2026-01-01T00:00:00Z"),
)
SETS = {"s1": {"a": 5, "b": 1}, "s2": {f"c{n}": 9 for n in range(32)}, "S 3": {"a": 1}, "s4": {}}
counters = st.dictionaries(
    st.sampled_from([*SETS, "none"]),
    st.dictionaries(st.sampled_from(["a", "b", "c1"]), st.integers(0, 6), max_size=3),
    max_size=3,
)
GPU = Device("GPU-0", "0", "GPU-0", 0, (), ())


@st.composite
def pool_devices(draw: st.DrawFn, number: int) -> PoolDevice:
    is_hostile = draw(st.booleans())
    is_shared = draw(st.booleans())
    return PoolDevice(
        draw(names) if is_hostile else f"gpu-{number}",
        GPU,
        draw(st.dictionaries(names, values, max_size=40 if is_hostile else 0)),
        draw(st.dictionaries(names, capacities, max_size=4)) if is_hostile else {},
        draw(counters) if not is_shared else {},
        tuple(draw(st.lists(taints, max_size=18))) if is_hostile else (),
        is_shared=is_shared,
    )


@st.composite
def pools(draw: st.DrawFn) -> Pool:
    devices = [draw(pool_devices(number)) for number in range(draw(st.integers(0, 6)))]
    plain = draw(st.sampled_from([0, 60, 128, 300]))
    devices += [PoolDevice(f"plain-{number}", GPU) for number in range(plain)]
    return Pool("gpu.nvidia.com", "node1", tuple(devices), SETS)


def pool_of(**fields: Any) -> Pool:
    return Pool("gpu.nvidia.com", "node1", (PoolDevice("gpu-0", GPU, **fields),), SETS)


@example(pool_of(taints=(Taint("a", effect="None"),)), ServerFeatures("v1", 35))
@example(pool_of(capacity={"a": Capacity(4, 2, 1, 0)}, is_shared=True), ServerFeatures("v1", 36))
@example(pool_of(attributes={"a": Version("1.2.3-01")}), ServerFeatures("v1", 36))
@example(pool_of(counters={"s2": {"c1": 1}, "s1": {"a": 1}}), ServerFeatures("v1", 34))
@given(pools(), features)
def test_any_pool(pool: Pool, kept: ServerFeatures) -> None:
    """A device beyond a limit is left out, and all others are published."""
    checked_slices(pool, kept)
