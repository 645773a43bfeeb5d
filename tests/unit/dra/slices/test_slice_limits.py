# SPDX-License-Identifier: Apache-2.0
"""The sentence about each limit of a device; tests/property has any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuhook.dra.pool.pool_device import Capacity, PoolDevice, Taint, Version
from gpuhook.dra.slices.slice_limits import within_limits
from tests.unit.dra.pools import device, pool_of, shared_device

SETS = {"s": {"c": 2}, "large": {f"c{n}": 1 for n in range(33)}, "B": {"c": 1}}
MEMORY = "its capacity memory"


def attribute(value: Any, name: str = "a") -> PoolDevice:
    return device(attributes={name: value})


def memory(*numbers: int) -> PoolDevice:
    return device(capacity={"memory": Capacity(*numbers)}, is_shared=True)


def tainted(*taints: Taint) -> PoolDevice:
    return device(taints=taints)


def counting(**counters: Any) -> PoolDevice:
    return device(counters=counters)


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (replace(device(), name="GPU_0"), "its name is not a DNS label"),
        (
            device(attributes={f"a{n}": 1 for n in range(33)}),
            "it has 33 attributes and capacities, more than 32",
        ),
        (attribute(1, "a-b"), "a-b is not a name of an attribute or capacity"),
        (attribute(1, "a" * 33), f"{'a' * 33} is not a name of an attribute or capacity"),
        (attribute(2**63), "its attribute a does not fit into 64 bits"),
        (attribute("x" * 65), "its attribute a is longer than 64 bytes"),
        (attribute(Version("1.02.3")), "its attribute a is not a semantic version: 1.02.3"),
        (memory(-1), f"{MEMORY} does not fit into 63 bits"),
        (memory(8, 4, 5, 1), f"{MEMORY} has a request policy that contradicts its value"),
        (memory(8, 8, 8, 1), f"{MEMORY} is less than the minimum of a request and one step"),
        (
            memory(8, 4, 1, 2),
            f"{MEMORY} has a default or maximum that is not the minimum and a multiple of the step",
        ),
        (tainted(*[Taint("a")] * 17), "it has 17 taints, more than 16"),
        (tainted(Taint("a/b/c d")), "'a/b/c d' is not a key of a taint"),
        (tainted(Taint("a", "b c")), "its taint a has a value that no label can have: 'b c'"),
        (tainted(Taint("a", effect="x")), "its taint a has the unknown effect 'x'"),
        (counting(a={"c": 1}, b={"c": 1}, s={"c": 1}), "it consumes 3 counter sets, more than 2"),
        (counting(large={"c1": 1}), "its counter sets have more than 32 counters"),
        (counting(s={}), "it consumes no counter of the set s"),
        (counting(B={"c": 1}), "its counter set B has a name that is not a DNS label"),
        (counting(s={"c": 3}), "it consumes more of c than its counter set s has"),
    ],
)
def test_a_device_beyond_a_limit(one: PoolDevice, reason: str) -> None:
    kept, refused = within_limits(pool_of(one, shared_device(1), counter_sets=SETS))
    assert refused == {one.name: reason}
    assert [left.name for left in kept.devices] == ["gpu-1"]
    assert kept.counter_sets == {}


def test_the_first_device_of_a_name_remains() -> None:
    kept, refused = within_limits(pool_of(device(0), device(1), replace(device(2), name="gpu-0")))
    assert refused == {"gpu-0": "another device has the same name"}
    assert [one.device.uuid for one in kept.devices] == ["GPU-0", "GPU-1"]
