# SPDX-License-Identifier: Apache-2.0
"""Slices are written when they must be, and only then, whatever the API server does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.dra.pool.pool_device import Capacity, Pool, Taint
from gpuhook.dra.slices.slice_client import SliceClient, withdraw
from tests.cluster_api.cluster_server import Cluster, Fault, node, serving
from tests.cluster_api.object_kinds import Object
from tests.unit.dra.pools import NODE, device, pool_of, profile_pool, shared_device, shared_pool
from tests.unit.dra.slices.publishing import (
    DRIVER,
    Running,
    devices,
    generations,
    names,
    publishing,
)
from tests.waiting import eventually

TAINT = Taint(f"{DRIVER}/xid", "79")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with serving(tmp_path) as found:
        found.store.add(node(NODE, "uid-of-node1"))
        yield found


def many(count: int, **fields: Any) -> Pool:
    return pool_of(*(device(number, **fields) for number in range(count)))


def uids(cluster: Cluster) -> list[str]:
    return [one["metadata"]["uid"] for one in cluster.store.slices()]


def test_a_shared_gpu(cluster: Cluster) -> None:
    with publishing(cluster, shared_pool("t4")) as running:
        [one] = cluster.store.slices()
        assert one["metadata"]["name"].startswith(f"00000-{DRIVER}-{NODE}-")
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "uid-of-node1"}
        assert one["metadata"]["ownerReferences"] == [{**owner, "controller": True}]
        [found] = devices(cluster)
        assert found["allowMultipleAllocations"] is True
        assert found["capacity"]["slots"]["requestPolicy"]["default"] == "1"
        assert found["attributes"]["driverVersion"] == {"version": "580.95.5"}
        assert running.log.texts("warning") == []
        [features, published] = running.log.texts("info")
        assert features == (
            "the API server has: Kubernetes 1.36, resource.k8s.io/v1, DRAConsumableCapacity on, "
            "DRAPartitionableDevices on, DRADeviceTaints on"
        )
        assert published == "published 1 devices in 1 ResourceSlices"


def test_a_restart_writes_nothing(cluster: Cluster) -> None:
    for pool in (shared_pool("h100x8"), profile_pool("a100-mig"), many(200)):
        with publishing(cluster, pool):
            pass
        before = cluster.writes()
        with publishing(cluster, pool) as running:
            assert cluster.writes() == before
            assert running.log.texts("info")[1:] == []


def test_the_slices_remain_at_the_end(cluster: Cluster) -> None:
    with publishing(cluster, many(2)):
        pass
    assert names(cluster) == ["gpu-0", "gpu-1"]


def test_one_changed_slice_keeps_the_generation(cluster: Cluster) -> None:
    pool = many(130)
    with publishing(cluster, pool) as running:
        assert generations(cluster) == [(1, 2)] * 2
        changed = replace(pool.devices[-1], attributes={"type": "other"})
        before = cluster.writes()
        running.publish(replace(pool, devices=(*pool.devices[:-1], changed)))
        assert cluster.writes() == before + 1
        assert generations(cluster) == [(1, 2)] * 2
        assert devices(cluster)[-1]["attributes"] == {"type": {"string": "other"}}


def test_other_changes_write_all_slices_in_a_new_generation(cluster: Cluster) -> None:
    with publishing(cluster, many(130)) as running:
        running.publish(many(300))
        assert generations(cluster) == [(2, 3)] * 3
        running.publish(many(129))
        assert generations(cluster) == [(3, 2)] * 2
        first = uids(cluster)
        running.publish(many(3))
        assert generations(cluster) == [(4, 1)]
        assert uids(cluster) == first[:1]
        assert names(cluster) == ["gpu-0", "gpu-1", "gpu-2"]


def test_a_pool_without_devices_is_one_empty_slice(cluster: Cluster) -> None:
    with publishing(cluster, pool_of(reason="the driver is not loaded")) as running:
        [one] = cluster.store.slices()
        assert "devices" not in one["spec"]
        assert running.log.texts("warning") == ["the pool has no devices: the driver is not loaded"]
        running.publish(many(1))
        assert names(cluster) == ["gpu-0"]
        assert uids(cluster) == [one["metadata"]["uid"]]


def test_slices_that_the_kubelet_deletes_are_published_again(cluster: Cluster) -> None:
    pool = many(130)
    with publishing(cluster, pool):
        for round_ in range(2, 4):
            assert cluster.store.remove("resourceslices") == 2
            eventually(lambda: len(names(cluster)) == 130, "new slices")
            assert generations(cluster) == [(round_, 2)] * 2


def test_one_deleted_slice_of_several(cluster: Cluster) -> None:
    with publishing(cluster, many(300)) as running:
        first = cluster.store.slices()[0]
        path = f"/apis/resource.k8s.io/v1/resourceslices/{first['metadata']['name']}"
        client = SliceClient(ApiServer(cluster.access, 5), DRIVER, NODE)
        client.delete(client.stored(first))
        eventually(lambda: len(names(cluster)) == 300, f"a new slice for {path}")
        eventually(lambda: generations(cluster) == [(2, 3)] * 3, "a new generation")
        assert names(cluster) == [f"gpu-{number}" for number in range(300)]
        assert running.log.texts("warning") == []


def test_foreign_changes_are_undone(cluster: Cluster) -> None:
    def spoil(one: Object) -> None:
        one["spec"]["devices"][0]["attributes"]["type"] = {"string": "banana"}

    with publishing(cluster, many(2)):
        [one] = cluster.store.slices()
        cluster.store.edit("resourceslices", one["metadata"]["name"], spoil)
        eventually(lambda: devices(cluster)[0]["attributes"]["type"] == {"string": "gpu"})
        assert generations(cluster) == [(1, 1)]


def test_foreign_slices_of_the_driver_are_deleted(cluster: Cluster) -> None:
    """They are of an earlier name of the pool, or of a create whose answer was lost."""
    pool = {"name": "old", "generation": 9, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": NODE, "pool": pool}
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice"}
    other = {**spec, "driver": "net.example.com"}
    for name, own in (("old", spec), ("other", other), ("00000-x", {**spec, "nodeName": "n2"})):
        cluster.store.add({**head, "metadata": {"name": name}, "spec": own})
    with publishing(cluster, many(1)):
        left = [one["metadata"]["name"] for one in cluster.store.slices()]
        assert [name[:6] for name in left] == ["00000-", "00000-", "other"]


def test_an_answer_that_is_lost_leaves_no_second_slice(cluster: Cluster) -> None:
    cluster.faults = [Fault("create", is_lost=True, count=0), Fault("update", is_lost=True)]
    with publishing(cluster, many(1)) as running:
        cluster.faults[0].count = 1
        running.publish(many(130))
        assert names(cluster) == [f"gpu-{number}" for number in range(130)]
        assert len(set(generations(cluster))) == 1
        assert len(generations(cluster)) == 2


@pytest.mark.parametrize(
    "fault",
    [
        Fault("create", "resourceslices", status=500, count=3),
        Fault("list", status=503, count=2),
        Fault("get", "nodes", status=500),
        Fault("create", "resourceslices", status=409),
        Fault("create", "resourceslices", pause=0.3, count=2),
    ],
    ids=lambda fault: f"{fault.verb}-{fault.status}",
)
def test_faults_are_retried(fault: Fault, cluster: Cluster) -> None:
    cluster.faults = [fault]
    with publishing(cluster, many(2)):
        assert names(cluster) == ["gpu-0", "gpu-1"]
        assert fault.count == 0


def test_a_conflict_is_read_again(cluster: Cluster) -> None:
    with publishing(cluster, many(1)) as running:
        cluster.faults = [Fault("update", status=409, count=3)]
        running.publish(many(2))
        assert names(cluster) == ["gpu-0", "gpu-1"]
        assert running.log.texts("warning") == []


def test_a_token_that_ended(cluster: Cluster) -> None:
    with publishing(cluster, many(1)) as running:
        cluster.tokens = {"second"}
        cluster.close_watches()
        running.publish(many(2), waits=False)
        eventually(lambda: any("401" in text for text in running.log.texts("warning")))
        Path(cluster.access.token_path).write_text("second\n", encoding="ascii")
        eventually(lambda: len(names(cluster)) == 2, "the new token")
        eventually(lambda: running.log.texts("info")[-1].endswith("up to date again"))


def test_a_missing_permission_is_reported_once(cluster: Cluster) -> None:
    cluster.forbidden = {("list", "resourceslices")}
    with publishing(cluster) as running:
        running.publish(many(1), waits=False)
        eventually(lambda: cluster.count("list") > 3, "retries")
        [text] = [one for one in running.log.texts("warning") if "GH1863" in one]
        assert "may not list resourceslices" in text
        cluster.forbidden = set()
        eventually(lambda: names(cluster) == ["gpu-0"], "the slices")


def test_without_nodes_the_slices_have_no_owner(cluster: Cluster) -> None:
    cluster.forbidden = {("get", "nodes")}
    with publishing(cluster, many(1)) as running:
        [one] = cluster.store.slices()
        assert "ownerReferences" not in one["metadata"]
        assert len(running.log.texts("warning")) == 1
    cluster.forbidden = set()
    with publishing(cluster, many(1)):
        assert cluster.store.slices()[0]["metadata"]["ownerReferences"]


def test_a_node_that_was_created_again_owns_the_slices(cluster: Cluster) -> None:
    with publishing(cluster, many(1)):
        pass
    cluster.store.remove("nodes")
    cluster.store.add(node(NODE))
    with publishing(cluster, many(1)):
        uid = cluster.store.get("nodes", NODE)["metadata"]["uid"]
        assert cluster.store.slices()[0]["metadata"]["ownerReferences"][0]["uid"] == uid
        assert len(uids(cluster)) == 1


@pytest.mark.parametrize("how", ["closed", "compacted", "silent"])
def test_watches_that_end(how: str, cluster: Cluster) -> None:
    with publishing(cluster, many(1)):
        if how == "compacted":
            cluster.holds_watches = True
            cluster.store.remove("resourceslices")
            cluster.store.compact()
            cluster.release_watches()
        elif how == "closed":
            cluster.close_watches()
            cluster.store.remove("resourceslices")
        else:  # changes come late: own writes do not look like those of others
            cluster.holds_watches = True
            cluster.store.remove("resourceslices")
            cluster.release_watches()
        eventually(lambda: names(cluster) == ["gpu-0"], "the slices")


def test_own_writes_cause_no_reading(cluster: Cluster) -> None:
    with publishing(cluster, many(1)) as running:
        cluster.holds_watches = True
        for count in range(2, 8):
            running.publish(many(count))
        lists = cluster.count("list")
        cluster.release_watches()
        cluster.close_watches()  # after its changes, the watch begins again
        eventually(lambda: cluster.count("watch") > 1)
        assert cluster.count("list") == lists


def test_a_resync_finds_what_no_watch_has_shown(cluster: Cluster) -> None:
    with publishing(cluster, many(1), resync=0.05):
        cluster.holds_watches = True
        cluster.store.remove("resourceslices")
        eventually(lambda: names(cluster) == ["gpu-0"], "the slices")
        cluster.release_watches()


def test_a_server_with_v1beta1_alone(cluster: Cluster) -> None:
    cluster.versions, cluster.store.minor = ("v1beta1",), 32
    pool = shared_pool("t4")
    with publishing(cluster, pool) as running:
        assert names(cluster) == [f"gpu-0-s{number}" for number in range(4)]
        assert {call.version for call in cluster.calls} <= {"", "v1beta1"}
        running.publish(replace(pool, devices=pool.devices * 1))
    before = cluster.writes()
    with publishing(cluster, pool):
        assert cluster.writes() == before


def test_a_server_without_the_api(cluster: Cluster) -> None:
    cluster.versions, cluster.store.minor = (), 31
    with publishing(cluster) as running:
        running.publish(many(1), waits=False)
        eventually(lambda: running.log.texts("warning"))
        [text] = running.log.texts("warning")
        assert "1.31" in text
        assert text.endswith("GH2611")
        cluster.versions = ("v1",)
        eventually(lambda: names(cluster) == ["gpu-0"])


def test_whole_gpus_need_no_gate(cluster: Cluster) -> None:
    cluster.store.minor = 34
    with publishing(cluster, profile_pool("h100x8")) as running:
        assert sorted(names(cluster)) == [f"gpu-{number}" for number in range(8)]
        assert not {"consumesCounters", "taints"} & set().union(*devices(cluster))
        features = running.log.texts("info")[0]
        assert features.startswith("the API server has: Kubernetes 1.34, resource.k8s.io/v1, ")
        assert features.count(" off") == 3


def test_without_shares_each_slot_is_a_device(cluster: Cluster) -> None:
    cluster.store.minor = 35
    with publishing(cluster, shared_pool("t4")) as running:
        found = devices(cluster)
        assert [one["name"] for one in found] == [f"gpu-0-s{n}" for n in range(4)]
        assert "allowMultipleAllocations" not in found[0]
        assert found[1]["attributes"]["replica"] == {"int": 1}
        uuid = found[1]["attributes"]["uuid"]
        assert found[1]["attributes"]["parentUUID"] == uuid
        assert [one["capacity"] for one in found] == [found[0]["capacity"]] * 4
        assert running.pool is not None
        assert [one.name for one in running.pool.devices] == [one["name"] for one in found]
        gates = ("DRAConsumableCapacity", "DRADeviceTaints", "DRAPartitionableDevices")
        warnings = running.log.texts("warning")
        assert len(warnings) == 3
        assert all(gate in text for gate, text in zip(gates, warnings, strict=True))


def test_without_taints_an_unhealthy_device_is_not_offered(cluster: Cluster) -> None:
    cluster.store.minor = 35
    lost, fine = device(0, taints=(TAINT,)), device(1, taints=(replace(TAINT, effect="None"),))
    with publishing(cluster, pool_of(lost, fine)) as running:
        assert names(cluster) == ["gpu-1"]
        running.publish(pool_of(replace(lost, taints=()), fine))
        assert names(cluster) == ["gpu-0", "gpu-1"]


def test_without_counters_no_devices_overlap(cluster: Cluster) -> None:
    cluster.store.gates = {"DRAConsumableCapacity", "DRADeviceTaints"}
    half, whole = {"s": {"slice": 1}}, {"s": {"slice": 2}}
    pool = pool_of(
        device(0, counters=half),
        device(1, counters=whole),
        device(2, counters=half),
        device(3),
        counter_sets={"s": {"slice": 2}},
    )
    with publishing(cluster, pool):
        assert names(cluster) == ["gpu-0", "gpu-2", "gpu-3"]
        assert all("consumesCounters" not in one for one in devices(cluster))


def test_a_gate_that_is_turned_off_while_the_driver_runs(cluster: Cluster) -> None:
    """As with several API servers: the stored object shows it."""
    with publishing(cluster, shared_pool("t4")) as running:
        cluster.store.gates = {"DRAPartitionableDevices", "DRADeviceTaints"}
        running.publish(shared_pool("t4", replicas=3))
        assert names(cluster) == [f"gpu-0-s{number}" for number in range(3)]
        [warning] = running.log.texts("warning")
        assert "DRAConsumableCapacity" in warning
        writes = cluster.writes()
    with publishing(cluster, shared_pool("t4", replicas=3)):
        assert cluster.writes() == writes


def test_a_gate_that_is_turned_on_with_a_restart_of_the_server(cluster: Cluster) -> None:
    cluster.store.minor = 35
    with publishing(cluster, shared_pool("t4")):
        assert len(names(cluster)) == 4
        cluster.store.minor = 36
        cluster.faults = [Fault("watch", status=503)]
        cluster.close_watches()
        eventually(lambda: names(cluster) == ["gpu-0"], "a shared device")


def test_a_server_that_refuses_dry_runs(cluster: Cluster) -> None:
    """Overlapping devices then have to wait, and the rest is seen in the stored slices."""
    cluster.store.minor = 35
    cluster.faults = [Fault("create", status=400)]
    with publishing(cluster, shared_pool("t4")) as running:
        assert names(cluster) == [f"gpu-0-s{number}" for number in range(4)]
        assert len(running.log.texts("warning")) >= 2


def test_counters_are_in_slices_of_their_own(cluster: Cluster) -> None:
    with publishing(cluster, profile_pool("a100-mig")):
        counters, rest = cluster.store.slices()
        assert "devices" not in counters["spec"]
        assert [one["name"] for one in counters["spec"]["sharedCounters"]] == [
            "gpu-0-counter-set",
            "gpu-2-counter-set",
        ]
        assert len(rest["spec"]["devices"]) == 12


def test_counters_of_1_34_are_with_their_devices(cluster: Cluster) -> None:
    cluster.store.minor = 34
    cluster.store.gates = {"DRAPartitionableDevices"}
    with publishing(cluster, profile_pool("a100-mig")):
        assert len(names(cluster)) == 12
        assert all(one["spec"]["devices"] for one in cluster.store.slices())


def test_a_taint_keeps_its_time(cluster: Cluster) -> None:
    pool = pool_of(device(0, taints=(TAINT,)), device(1))
    with publishing(cluster, pool):
        [first] = devices(cluster)[0]["taints"]
        assert first["timeAdded"]

    def earlier(one: Object) -> None:
        one["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"

    [one] = cluster.store.slices()
    cluster.store.edit("resourceslices", one["metadata"]["name"], earlier)
    before = cluster.writes()
    with publishing(cluster, pool) as running:
        assert cluster.writes() == before
        both = tuple(replace(d, taints=(TAINT,)) for d in pool.devices)
        running.publish(replace(pool, devices=both))
        times = [d["taints"][0]["timeAdded"] for d in devices(cluster)]
        assert times[0] == "2026-01-01T00:00:00Z" < times[1]
        assert generations(cluster) == [(1, 1)]
        running.publish(many(2))
        assert all("taints" not in one for one in devices(cluster))


def test_a_webhook_that_adds_something_causes_no_loop(cluster: Cluster) -> None:
    original = cluster.store._put

    def put(key: Any, change: str, kind: Any, one: Object) -> Object:
        for own in one["spec"].get("devices", ()) if kind.name == "ResourceSlice" else ():
            own["attributes"]["site"] = {"string": "x"}
        return original(key, change, kind, one)

    cluster.store._put = put  # type: ignore[method-assign]
    with publishing(cluster, many(1), resync=0.02):
        lists = cluster.count("list")
        eventually(lambda: cluster.count("list") > lists + 3)
        assert cluster.writes() == 1


def test_a_device_beyond_a_limit_is_left_out(cluster: Cluster) -> None:
    wrong = device(1, attributes={"type": "gpu", "text": "x" * 65})
    with publishing(cluster, pool_of(device(0), wrong, device(2))) as running:
        assert names(cluster) == ["gpu-0", "gpu-2"]
        [text] = running.log.texts("warning")
        assert "gpu-1" in text
        assert "its attribute text is longer than 64 bytes" in text
        assert text.endswith("GH2610")


def test_the_last_of_many_pools_is_published(cluster: Cluster) -> None:
    cluster.faults = [Fault("list", pause=0.2)]
    with publishing(cluster) as running:
        for count in range(1, 40):
            running.publish(many(count), waits=False)
        eventually(lambda: len(names(cluster)) == 39, "the last pool")
        assert cluster.count("update") + cluster.count("create") < 10


def test_withdraw_deletes_the_slices_of_the_driver(cluster: Cluster) -> None:
    with publishing(cluster, many(300)):
        pass
    assert withdraw(SliceClient(ApiServer(cluster.access, 5), DRIVER, NODE)) == 3
    assert cluster.store.slices() == []


def test_a_restart_in_the_middle_of_a_generation(cluster: Cluster) -> None:
    """As after kill -9 between two writes: the next process completes the pool."""
    with publishing(cluster, many(300)) as running:
        cluster.faults = [Fault("update", status=500, count=0)]
        cluster.faults.append(Fault("update", count=1))
        cluster.faults.append(Fault("update", status=500, count=10**6))
        running.publish(many(301, capacity={"memory": Capacity(1)}), waits=False)
        eventually(lambda: running.log.texts("warning"))
    assert len(set(generations(cluster))) == 2
    cluster.faults = []
    with publishing(cluster, many(301)):
        assert len(set(generations(cluster))) == 1
        assert names(cluster) == [f"gpu-{number}" for number in range(301)]


def test_two_instances_agree(cluster: Cluster) -> None:
    """During a rolling update both publish the same pool, and none writes again."""
    pool = copy.deepcopy(pool_of(shared_device(0), shared_device(1)))
    with publishing(cluster, pool), publishing(cluster, pool) as second:
        assert len(uids(cluster)) == 1
        cluster.store.remove("resourceslices")
        eventually(lambda: len(uids(cluster)) == 1, "one slice")
        writes = cluster.writes()
        second.publish(pool)
        assert cluster.writes() - writes <= 2


def seconds_to_next(running: Running) -> float:
    """Return the seconds until changes of others are undone."""
    timer = running.publisher and running.publisher._watch._timer
    return timer.when() - running.loop.time() if timer else 0.0


def test_another_driver_of_the_name_is_reported_and_not_fought(cluster: Cluster) -> None:
    def spoil(one: Object) -> None:
        one["spec"]["devices"][0]["attributes"]["type"] = {"string": "banana"}

    def types() -> list[Object]:
        return [one["attributes"]["type"] for one in devices(cluster)]

    with publishing(cluster, many(1)) as running:
        for number in range(5):
            [one] = cluster.store.slices()
            cluster.store.edit("resourceslices", one["metadata"]["name"], spoil)
            eventually(lambda: types() == [{"string": "gpu"}], f"write {number}")
        warned = [one for one in running.log.texts("warning") if one.endswith("GH2612")]
        assert len(warned) == 1
        [one] = cluster.store.slices()
        cluster.store.edit("resourceslices", one["metadata"]["name"], spoil)
        eventually(lambda: seconds_to_next(running) > 60, "a long pause")
        assert types() == [{"string": "banana"}]
        running.publish(many(2))  # its own changes are written still
        assert types() == [{"string": "gpu"}] * 2
