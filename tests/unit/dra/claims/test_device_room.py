# SPDX-License-Identifier: Apache-2.0
"""All claims of a device together never have more than it has, whatever the scheduler counted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuhook.dra.claims.claim import AllocatedDevice
from gpuhook.dra.pool.pool_device import Pool
from gpuhook.dra.slices.server_features import SHARES, ServerFeatures
from gpuhook.dra.slices.server_form import server_form
from tests.refusal import refused
from tests.unit.dra.claims.share_claims import GIB, SHARED, NodeOfClaims

MIB = 1 << 20
T4 = 15 * GIB


def share(node: NodeOfClaims, size: int = 256 * MIB, slots: int = 1) -> AllocatedDevice:
    return node.result(consumed={"memory": size, "slots": slots})


def prepare(node: NodeOfClaims, *names: str) -> None:
    for name in names:
        node.shares(node.claim(name, share(node)))


def replicas(node: NodeOfClaims) -> None:
    """Add the devices of an API server without shared devices."""
    pool = Pool(node.driver, "node1", tuple(node.devices.values()))
    without = server_form(pool, ServerFeatures().without([SHARES]))
    node.devices |= {one.name: one for one in without.devices}


def test_more_claims_than_slots_are_refused() -> None:
    node = NodeOfClaims()
    prepare(node, *"abcd")
    with refused("GH2625", "5 of 4 slots", "team/e", "team/a, team/b, team/c, team/d"):
        prepare(node, "e")


def test_slots_of_one_claim_are_counted() -> None:
    node = NodeOfClaims()
    node.shares(node.claim("a", share(node, slots=3)))
    prepare(node, "b")
    with refused("GH2625", "5 of 4 slots"):
        prepare(node, "c")


def test_claims_of_the_other_form_are_counted() -> None:
    node = NodeOfClaims()
    replicas(node)
    for number in range(3):
        node.shares(node.claim(f"old{number}", node.result(f"gpu-0-s{number}", consumed={})))
    prepare(node, "new")
    with refused("GH2625", "slots"):
        prepare(node, "more")


def test_more_memory_than_the_device_has_is_refused() -> None:
    node = NodeOfClaims()
    node.shares(node.claim("a", share(node, 10 * GIB)))
    with refused("GH2625", "16Gi of 15Gi memory", "team/b"):
        node.shares(node.claim("b", share(node, 6 * GIB)))
    node.shares(node.claim("b", share(node, 5 * GIB)))


@pytest.mark.parametrize("size", [T4 + 1, 1 << 80])
def test_one_claim_cannot_have_more_than_the_device(size: int) -> None:
    node = NodeOfClaims()
    with refused("GH2625", "memory"):
        node.shares(node.claim("a", share(node, size)))


def test_an_observer_takes_no_room() -> None:
    node = NodeOfClaims()
    prepare(node, *"abc")
    node.shares(node.claim("admin", replace(share(node), is_admin=True)))
    prepare(node, "d")


def test_one_claim_does_not_have_a_whole_device_twice() -> None:
    node = NodeOfClaims("{}")
    with refused("GH2625", "2 of 1 slots"):
        node.shares(node.claim("a", node.result(), node.result(request="other")))


@pytest.mark.parametrize("size", [1, 1000, MIB - 1])
def test_less_than_a_mebibyte_is_not_unlimited(size: int) -> None:
    node = NodeOfClaims()
    (found,) = node.shares(node.claim("a", share(node, size)))
    assert found.memory == MIB


def test_limits_above_the_device_give_fewer_replicas() -> None:
    entry = "replicas: 4, memory: 6Gi, oversubscribe: true"
    node = NodeOfClaims(SHARED.replace("replicas: 4", entry))
    replicas(node)
    assert [name for name in node.devices if "-s" in name] == ["gpu-0-s0", "gpu-0-s1"]
    for number in range(2):
        node.shares(node.claim(f"a{number}", node.result(f"gpu-0-s{number}", consumed={})))
