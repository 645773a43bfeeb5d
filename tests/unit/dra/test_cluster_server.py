# SPDX-License-Identifier: Apache-2.0
"""The API server of the tests refuses what Kubernetes 1.36 refuses, and answers as it does."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuhook.device_plugin.api_server.client import (
    ApiServer,
    GoneError,
    Purpose,
    is_conflict,
    is_forbidden,
    is_missing,
)
from gpuhook.errors import GpuhookError
from tests.cluster_api.cluster_server import Cluster, Fault, node, serving
from tests.cluster_api.object_kinds import Object

SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ANY = Purpose("get", "resourceslices", "test", "resource.k8s.io")
WATCH = Purpose("watch", "resourceslices", "test", "resource.k8s.io")
OWN = {"fieldSelector": "spec.nodeName=node1,spec.driver=gpu.nvidia.com"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with serving(tmp_path) as found:
        yield found


@pytest.fixture
def server(cluster: Cluster) -> ApiServer:
    return ApiServer(cluster.access, 5)


def device(name: str = "gpu-0", **more: Any) -> Object:
    return {"name": name, **more}


def resource_slice(*devices: Object, **spec: Any) -> Object:
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 1}
    own: Object = {"driver": "gpu.nvidia.com", "nodeName": "node1", "pool": pool}
    if devices:
        own["devices"] = list(devices)
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "00000-gpu.nvidia.com-node1-"},
        "spec": {**own, **spec},
    }


def shared(**policy: Any) -> Object:
    memory = {"value": "80Gi", "requestPolicy": policy}
    return device(allowMultipleAllocations=True, capacity={"memory": memory})


def counting(name: str = "gpu-1") -> Object:
    return device(name, consumesCounters=[{"counterSet": "s", "counters": {"c": {"value": "1"}}}])


def test_an_object_is_created_listed_and_watched(cluster: Cluster, server: ApiServer) -> None:
    made = server.create(SLICES, resource_slice(device()), ANY)
    assert made["metadata"]["name"].startswith("00000-gpu.nvidia.com-node1-")
    listed = server.get(SLICES, ANY, OWN)
    assert [one["metadata"]["uid"] for one in listed["items"]] == [made["metadata"]["uid"]]
    assert server.get(SLICES, ANY, {"fieldSelector": "spec.nodeName=node2"})["items"] == []
    query = {**OWN, "resourceVersion": listed["metadata"]["resourceVersion"]}
    changes = server.watch(SLICES, WATCH, query, 5, "application/json")
    path = f"{SLICES}/{made['metadata']['name']}"
    server.replace(path, {**made, "spec": {**made["spec"], "devices": [device("gpu-1")]}}, ANY)
    assert cluster.store.remove("resourceslices") == 1
    seen = [changes.next() for _ in range(2)]
    assert [one and one["type"] for one in seen] == ["MODIFIED", "DELETED"]
    cluster.close_watches()
    assert changes.next() is None
    changes.close()
    assert cluster.writes() == 2


def test_conflicts_and_preconditions(server: ApiServer) -> None:
    made = server.create(SLICES, resource_slice(device()), ANY)
    path = f"{SLICES}/{made['metadata']['name']}"
    new = copy.deepcopy(made)
    new["spec"]["devices"] = [device("gpu-9")]
    server.replace(path, new, ANY)
    with pytest.raises(GpuhookError) as stale:
        server.replace(path, new, ANY)
    assert is_conflict(stale.value)
    uid, version = made["metadata"]["uid"], made["metadata"]["resourceVersion"]
    with pytest.raises(GpuhookError) as old:
        server.delete(path, ANY, {"uid": uid, "resourceVersion": version})
    assert is_conflict(old.value)
    server.delete(path, ANY, {"uid": uid})
    with pytest.raises(GpuhookError) as gone:
        server.get(path, ANY)
    assert is_missing(gone.value)


def test_an_equal_update_changes_nothing(server: ApiServer) -> None:
    made = server.create(SLICES, resource_slice(device()), ANY)
    again = server.replace(f"{SLICES}/{made['metadata']['name']}", made, ANY)
    assert again["metadata"] == made["metadata"]


def test_a_dry_run_keeps_nothing(cluster: Cluster, server: ApiServer) -> None:
    server.create(f"{SLICES}?dryRun=All", resource_slice(device()), ANY)
    assert cluster.store.slices() == []


@pytest.mark.parametrize("by", ["the answer", "the stream"])
def test_an_old_watch_is_gone(by: str, cluster: Cluster, server: ApiServer) -> None:
    version = str(cluster.store.version)
    if by == "the answer":
        server.create(SLICES, resource_slice(), ANY)
        cluster.store.compact()
        with pytest.raises(GoneError):
            server.watch(SLICES, WATCH, {"resourceVersion": version}, 5)
        return
    changes = server.watch(SLICES, WATCH, {"resourceVersion": version}, 5)
    cluster.holds_watches = True
    server.create(SLICES, resource_slice(), ANY)
    cluster.store.compact()
    cluster.release_watches()
    with pytest.raises(GoneError):
        changes.next()
    changes.close()


def test_faults(cluster: Cluster, server: ApiServer) -> None:
    cluster.faults = [Fault("create", is_lost=True), Fault("list", status=503, count=2)]
    with pytest.raises(GpuhookError, match="API server"):
        server.create(SLICES, resource_slice(), ANY)
    assert len(cluster.store.slices()) == 1
    for _ in range(2):
        with pytest.raises(GpuhookError, match="503"):
            server.get(SLICES, ANY)
    assert len(server.get(SLICES, ANY)["items"]) == 1
    cluster.forbidden = {("list", "resourceslices")}
    with pytest.raises(GpuhookError) as error:
        server.get(SLICES, ANY)
    assert is_forbidden(error.value)


def test_a_token_that_ended_is_replaced(cluster: Cluster, server: ApiServer) -> None:
    cluster.tokens = {"second"}
    with pytest.raises(GpuhookError, match="401"):
        server.get(SLICES, ANY)
    Path(cluster.access.token_path).write_text("second\n", encoding="ascii")
    assert server.get(SLICES, ANY)["items"] == []


def test_https(tmp_path: Path) -> None:
    with serving(tmp_path, secure=True) as cluster:
        cluster.store.add(node("node1"))
        assert ApiServer(cluster.access, 5).get("/api/v1/nodes/node1", ANY)["kind"] == "Node"


def test_the_old_version_wraps_devices(cluster: Cluster, server: ApiServer) -> None:
    cluster.versions = ("v1beta1",)
    with pytest.raises(GpuhookError) as missing:
        server.get(SLICES, ANY)
    assert is_missing(missing.value)
    old = SLICES.replace("v1", "v1beta1")
    with pytest.raises(GpuhookError, match="unknown fields"):
        server.create(old, resource_slice(shared(default="20Gi")), ANY)
    wrapped = {"name": "gpu-0", "basic": {"attributes": {"type": {"string": "gpu"}}}}
    made = server.create(old, resource_slice(wrapped), ANY)
    assert made["spec"]["devices"] == [wrapped]
    assert cluster.store.slices()[0]["spec"]["devices"][0]["attributes"]


def test_fields_without_their_gate_are_dropped(cluster: Cluster, server: ApiServer) -> None:
    cluster.store.minor = 35
    taint = {"key": "a", "effect": "NoSchedule"}
    full = {**shared(default="20Gi"), "taints": [taint]}
    made = server.create(SLICES, resource_slice(full), ANY)
    assert made["spec"]["devices"] == [{"name": "gpu-0", "capacity": {"memory": {"value": "80Gi"}}}]


def test_quantities_and_times_are_completed(server: ApiServer) -> None:
    one = shared(default="20480Mi", validRange={"min": "1024Mi", "step": "1024Mi"})
    one["taints"] = [{"key": "a", "effect": "None"}]
    one["capacity"]["slots"] = {"value": "2000"}
    [made] = server.create(SLICES, resource_slice(one), ANY)["spec"]["devices"]
    policy = made["capacity"]["memory"]["requestPolicy"]
    assert policy == {"default": "20Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    assert made["capacity"]["slots"]["value"] == "2k"
    assert made["taints"][0]["timeAdded"]


def many(count: int, **more: Any) -> list[Object]:
    return [device(f"gpu-{number}", **more) for number in range(count)]


def attribute(name: str, **value: Any) -> Object:
    return device(attributes={name: value})


TAINT = {"key": "a", "effect": "NoSchedule"}
SET = {"name": "s", "counters": {"c": {"value": "1"}}}
REFUSED: dict[str, Object] = {
    "129 devices": resource_slice(*many(129)),
    "65 with a taint": resource_slice(*many(64), device("x", taints=[TAINT])),
    "65 with counters": resource_slice(*many(64), counting("x")),
    "a name twice": resource_slice(device(), device()),
    "no label": resource_slice(device("GPU_0")),
    "long label": resource_slice(device("g" * 64)),
    "33 facts": resource_slice(device(attributes={f"a{n}": {"int": n} for n in range(33)})),
    "long id": resource_slice(attribute("a" * 33, int=1)),
    "no id": resource_slice(attribute("a-b", int=1)),
    "long domain": resource_slice(attribute(f"{'d' * 64}/a", int=1)),
    "two values": resource_slice(attribute("a", int=1, bool=True)),
    "no value": resource_slice(attribute("a")),
    "long text": resource_slice(attribute("a", string="é" * 33)),
    "leading zero": resource_slice(attribute("a", version="580.65.06")),
    "two numbers": resource_slice(attribute("a", version="13.0")),
    "large int": resource_slice(attribute("a", int=2**63)),
    "a text of an int": resource_slice(attribute("a", int="1")),
    "9 sets": resource_slice(sharedCounters=[{**SET, "name": f"s{n}"} for n in range(9)]),
    "33 counters": resource_slice(
        sharedCounters=[{"name": "s", "counters": {f"c{n}": {"value": "1"} for n in range(33)}}]
    ),
    "sets and devices": resource_slice(device(), sharedCounters=[SET]),
    "no counters": resource_slice(sharedCounters=[{"name": "s", "counters": {}}]),
    "17 taints": resource_slice(device(taints=[TAINT] * 17)),
    "an effect": resource_slice(device(taints=[{"key": "a", "effect": "Never"}])),
    "a taint's value": resource_slice(device(taints=[{**TAINT, "value": "a b"}])),
    "an unshared policy": resource_slice(
        device(capacity={"memory": {"value": "1Gi", "requestPolicy": {"default": "1Gi"}}})
    ),
    "default below min": resource_slice(shared(default="1Gi", validRange={"min": "2Gi"})),
    "default between steps": resource_slice(
        shared(default="20Gi", validRange={"min": "1Gi", "step": "2Gi"})
    ),
    "a step too far": resource_slice(
        shared(default="1Gi", validRange={"min": "1Gi", "step": "80Gi"})
    ),
    "no default": resource_slice(shared(validRange={"min": "1Gi"})),
    "default not valid": resource_slice(shared(default="1Gi", validValues=["2Gi"])),
    "descending": resource_slice(shared(default="2Gi", validValues=["3Gi", "2Gi"])),
    "no quantity": resource_slice(device(capacity={"memory": {"value": "many"}})),
    "no count": resource_slice(pool={"name": "node1", "generation": 1, "resourceSliceCount": 0}),
    "no pool": resource_slice(pool={"name": "a_b", "generation": 1, "resourceSliceCount": 1}),
    "a long driver": resource_slice(driver=f"{'d' * 60}.com"),
    "two places": resource_slice(allNodes=True),
    "an unknown field": resource_slice(device(alowMultipleAllocations=True)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_limits_of_slices(name: str, server: ApiServer) -> None:
    with pytest.raises(GpuhookError, match="422"):
        server.create(SLICES, REFUSED[name], ANY)


def test_what_is_within_the_limits(server: ApiServer) -> None:
    server.create(SLICES, resource_slice(*many(128)), ANY)
    server.create(SLICES, resource_slice(*many(63), counting("x")), ANY)
    server.create(SLICES, resource_slice(), ANY)
    policy = {"default": "21Gi", "validRange": {"min": "1Gi", "max": "79Gi", "step": "2Gi"}}
    server.create(SLICES, resource_slice(shared(**policy)), ANY)
    server.create(SLICES, resource_slice(sharedCounters=[SET]), ANY)


def test_counters_of_1_34_are_in_the_slice_of_their_devices(
    cluster: Cluster, server: ApiServer
) -> None:
    cluster.store.minor, cluster.store.gates = 34, {"DRAPartitionableDevices"}
    server.create(SLICES, resource_slice(counting(), sharedCounters=[SET]), ANY)
    with pytest.raises(GpuhookError, match="unknown counters"):
        server.create(SLICES, resource_slice(counting()), ANY)


CLAIM = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}
RESULT = {"request": "gpu", "driver": "gpu.nvidia.com", "pool": "node1", "device": "gpu-0"}


def claim(**devices: Any) -> Object:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns"},
        "spec": {"devices": {**CLAIM, **devices}},
    }


def test_the_status_of_a_claim(cluster: Cluster, server: ApiServer) -> None:
    made = cluster.store.add(claim())
    path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"
    status: Object = {"allocation": {"devices": {"results": [RESULT]}}}
    server.replace(f"{path}/status", {**made, "status": status}, ANY)
    own = {name: RESULT[name] for name in ("driver", "pool", "device")}
    server.patch(f"{path}/status", {"status": {"devices": [{**own, "data": {"a": 1}}]}}, ANY)
    assert server.get(path, ANY)["status"]["devices"][0]["data"] == {"a": 1}
    for wrong in ({**own, "device": "gpu-1"}, {**own, "data": {"a": "x" * 11000}}):
        with pytest.raises(GpuhookError, match="422"):
            server.patch(f"{path}/status", {"status": {"devices": [wrong]}}, ANY)
    server.patch(path, {"status": {"devices": []}}, ANY)  # not by the subresource: no effect
    assert server.get(path, ANY)["status"]["devices"]
    with pytest.raises(GpuhookError, match="immutable"):
        server.patch(path, {"spec": {"devices": {"constraints": []}}}, ANY)


@pytest.mark.parametrize(
    "devices",
    [
        {"requests": CLAIM["requests"] * 33},
        {"requests": [{"name": "gpu"}]},
        {"config": [{"opaque": {"driver": "d", "parameters": {"a": "x" * 11000}}}]},
        {"config": [{"requests": ["no"], "opaque": {"driver": "d", "parameters": {}}}]},
        {"constraints": [{"matchAttribute": "numaNode"}]},
    ],
)
def test_limits_of_claims(devices: Object, cluster: Cluster, server: ApiServer) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims"
    with pytest.raises(GpuhookError, match="422"):
        server.create(path, claim(**devices), ANY)
