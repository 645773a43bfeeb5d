# SPDX-License-Identifier: Apache-2.0
"""What the scheduler makes of the published slices: shares until memory and slots are exhausted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuhook.dra.pool.pool_device import Pool, Taint
from gpuhook.dra.slices.server_features import ServerFeatures
from gpuhook.dra.slices.server_form import server_form
from gpuhook.dra.slices.slice_layout import slice_specs
from tests.cluster_api.allocator import Allocator, NoFitError
from tests.cluster_api.amounts import amount
from tests.cluster_api.cluster_server import Cluster, node, serving
from tests.cluster_api.object_kinds import Object
from tests.cluster_api.object_store import ObjectStore
from tests.unit.dra.cluster_claims import (
    DRIVER,
    claim,
    device_class,
    memory,
    request,
    results,
)
from tests.unit.dra.pools import (
    GIB,
    NODE,
    device,
    pool_of,
    profile_pool,
    shared_device,
    shared_pool,
)
from tests.unit.dra.slices.publishing import publishing


@dataclass
class Scheduler:
    """A cluster whose claims are created and allocated at once."""

    store: ObjectStore
    count: int = 0

    def claim(self, *requests: Object, **devices: Any) -> list[Object]:
        """Return the results for a new claim; raises NoFitError."""
        self.count += 1
        name = f"c{self.count}"
        self.store.add(claim(name, *requests, **devices))
        return results(Allocator(self.store).allocate(name))

    def waits(self, *requests: Object, **devices: Any) -> bool:
        """Return whether a new claim does not fit."""
        try:
            self.claim(*requests, **devices)
        except NoFitError:
            return True
        return False

    def until_full(self, *requests: Object) -> list[Object]:
        """Return the results of equal claims until none fits."""
        found: list[Object] = []
        while len(found) < 100:
            try:
                found += self.claim(*requests)
            except NoFitError:
                break
        return found


def scheduler(pool: Pool, minor: int = 36, **spec: Any) -> Scheduler:
    """Return a scheduler for the slices of a pool."""
    store = ObjectStore(minor)
    store.add(device_class(**spec))
    gates = ServerFeatures().gates if minor >= 36 else frozenset[str]()
    features = ServerFeatures(minor=minor, gates=gates)
    specs = slice_specs(server_form(pool, features), features)
    for number, one in enumerate(specs):
        own = {**one["pool"], "generation": 1, "resourceSliceCount": len(specs)}
        metadata = {"name": f"{number:05x}-slice"}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
        store.add({**head, "metadata": metadata, "spec": {**one, "pool": own}})
    return Scheduler(store)


def consumed(found: list[Object], name: str) -> int:
    return sum(amount(one["consumedCapacity"][name]) for one in found)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with serving(tmp_path) as found:
        found.store.add(node(NODE))
        yield found


def test_claims_without_a_request_get_equal_shares(cluster: Cluster) -> None:
    """`nvidia.com/gpu: 1` has no request of memory: four pods share each GPU."""
    cluster.store.add(device_class(extendedResourceName="nvidia.com/gpu"))
    with publishing(cluster, shared_pool("h100x8")):
        found = Scheduler(cluster.store).until_full()
    assert len(found) == 32
    assert len({one["shareID"] for one in found}) == 32
    assert [one["device"] for one in found[:5]] == ["gpu-0"] * 4 + ["gpu-1"]
    each = {amount(one["consumedCapacity"]["memory"]) for one in found}
    assert len(each) == 1


def test_memory_is_exhausted_before_slots() -> None:
    one = scheduler(pool_of(shared_device(slots=8)))
    found = one.until_full(request(capacity=memory("30Gi")))
    assert len(found) == 2
    assert consumed(found, "memory") == 60 * GIB
    assert one.waits(request(capacity=memory("21Gi")))
    rest = one.claim(request(capacity=memory("19.5Gi")))
    assert consumed(rest, "memory") == 20 * GIB  # rounded up to the step
    assert one.waits(request(capacity=memory("1")))


def test_slots_are_exhausted_before_memory() -> None:
    one = scheduler(pool_of(shared_device(slots=4)))
    found = one.until_full(request(capacity=memory("1Gi")))
    assert len(found) == 4
    assert consumed(found, "slots") == 4


def test_a_claim_can_have_all_slots_and_all_memory() -> None:
    one = scheduler(pool_of(shared_device(slots=4)))
    assert one.claim(request(capacity=memory("80Gi", slots="4")))
    assert one.waits()


def test_an_end_of_a_claim_frees_its_share() -> None:
    one = scheduler(pool_of(shared_device(slots=2)))
    one.until_full()
    assert one.waits()
    Allocator(one.store).deallocate("c1")
    assert one.claim()


def test_exclusive_gpus_have_one_claim() -> None:
    one = scheduler(pool_of(device(0), device(1)))
    found = one.until_full()
    assert [result["device"] for result in found] == ["gpu-0", "gpu-1"]
    assert all("shareID" not in result for result in found)


def test_one_request_for_two_gets_two_gpus() -> None:
    one = scheduler(pool_of(shared_device(0), shared_device(1)))
    assert {found["device"] for found in one.claim(request(count=2))} == {"gpu-0", "gpu-1"}
    assert one.waits(request(count=3))


def test_slots_of_an_old_server_are_devices() -> None:
    one = scheduler(shared_pool("t4"), minor=34)
    assert [found["device"] for found in one.until_full()] == [f"gpu-0-s{n}" for n in range(4)]
    apart = [{"distinctAttribute": f"{DRIVER}/parentUUID"}]
    two = scheduler(shared_pool("h100x8"), minor=34)
    found = two.claim(request(count=2), constraints=apart)
    assert [result["device"] for result in found] == ["gpu-0-s0", "gpu-1-s0"]


def test_mig_instances_are_allocated_once() -> None:
    one = scheduler(profile_pool("a100-mig"))
    mig = f"device.attributes['{DRIVER}'].type == 'mig'"
    one.store.add(device_class("mig", mig))
    small = f"device.attributes['{DRIVER}'].profile == '1g.5gb'"
    selectors = [{"cel": {"expression": small}}]
    found = one.until_full(request(device_class="mig", selectors=selectors))
    assert [result["device"] for result in found] == [f"gpu-0-mig-1g-5gb-19-{n}" for n in range(7)]
    rest = one.until_full(request(device_class="mig"))
    assert len(rest) == 4
    assert [result["device"] for result in one.until_full()] == ["gpu-1"]


def test_overlapping_devices_exclude_each_other() -> None:
    half, whole = {"s": {"slice": 1}}, {"s": {"slice": 2}}
    sets = {"s": {"slice": 2}}
    parts = (device(0, counters=half), device(1, counters=whole), device(2, counters=half))
    one = scheduler(pool_of(*parts, counter_sets=sets))
    assert [found["device"] for found in one.until_full()] == ["gpu-0", "gpu-2"]
    without = scheduler(pool_of(*parts, counter_sets=sets), minor=35)
    assert [found["device"] for found in without.until_full()] == ["gpu-0", "gpu-2"]


def test_a_tainted_device_is_not_used() -> None:
    taint = Taint(f"{DRIVER}/xid", "79")
    one = scheduler(pool_of(device(0, taints=(taint,)), device(1)))
    assert [found["device"] for found in one.until_full()] == ["gpu-1"]
    toleration = {"key": taint.key, "operator": "Exists"}
    found = one.claim(request(tolerations=[toleration]))
    assert found[0]["device"] == "gpu-0"


def test_an_incomplete_pool_is_not_used() -> None:
    one = scheduler(pool_of(*(device(number) for number in range(130))))
    name = one.store.slices()[1]["metadata"]["name"]

    def renew(stored: Object) -> None:
        stored["spec"]["pool"]["generation"] = 2

    one.store.edit("resourceslices", name, renew)
    assert one.waits()


def test_a_claim_that_chooses_the_first_available() -> None:
    one = scheduler(pool_of(shared_device(slots=4)))
    big = {"name": "big", "deviceClassName": DRIVER, "capacity": memory("60Gi")}
    small = {"name": "small", "deviceClassName": DRIVER, "capacity": memory("10Gi")}
    choice = {"name": "gpu", "firstAvailable": [big, small]}
    found = [one.claim(choice)[0]["request"] for _ in range(3)]
    assert found == ["gpu/big", "gpu/small", "gpu/small"]
    assert one.waits(choice)


def test_configuration_of_class_and_claim() -> None:
    parameters = {"apiVersion": "x/v1", "kind": "GpuConfig"}
    opaque = {"opaque": {"driver": DRIVER, "parameters": parameters}}
    one = scheduler(pool_of(device(0)), config=[opaque])
    one.claim(request(), config=[{"requests": ["gpu"], **opaque}])
    stored = one.store.get("resourceclaims", "c1", "ns")
    sources = [c["source"] for c in stored["status"]["allocation"]["devices"]["config"]]
    assert sources == ["FromClass", "FromClaim"]


def test_an_observer_uses_nothing() -> None:
    one = scheduler(pool_of(device(0)))
    assert one.claim(request(adminAccess=True))[0]["adminAccess"]
    assert one.claim()
    assert one.claim(request(adminAccess=True))
