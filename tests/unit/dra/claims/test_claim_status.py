# SPDX-License-Identifier: Apache-2.0
"""What a driver writes into the status of a claim, beside other drivers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gpuhook.device_plugin.api_server.client import ApiServer
from gpuhook.dra.claims.claim_status import ClaimStatus, device_entries, with_entries
from gpuhook.dra.claims.prepared_claim import PreparedClaim
from gpuhook.dra.pool.pool_device import PoolDevice
from tests.cluster_api.cluster_server import Cluster, Fault, serving
from tests.kubelet.allocated_claims import allocated, named, result
from tests.unit.dra.claims.share_claims import NodeOfClaims
from tests.waiting import eventually

NOW = "2026-01-02T03:04:05Z"
SHARE = "8a3f9a5e-6b1c-4a63-9e2c-0d1f5b7c1a11"
A = named("a")


def prepared(node: NodeOfClaims, **fields: Any) -> tuple[PreparedClaim, list[PoolDevice]]:
    """Return claim A with a share of gpu-0."""
    claim = node.claim("a", node.result(share_id=SHARE, **fields))
    shares = node.shares(claim)
    made = PreparedClaim(type(claim)(A, claim.devices), (), "", is_complete=True, shares=shares)
    return made, [node.devices["gpu-0"]]


def test_the_entry_of_a_share() -> None:
    claim, devices = prepared(NodeOfClaims())
    (entry,) = device_entries(claim, devices, NOW)
    assert entry == {
        "driver": "gpu.nvidia.com",
        "pool": "node1",
        "device": "gpu-0",
        "shareID": SHARE,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Prepared",
                "message": "the CDI spec of the claim is written",
                "lastTransitionTime": NOW,
            }
        ],
        "data": {
            "uuid": claim.shares[0].uuid,
            "index": "0",
            "minor": 0,
            "memoryLimit": "3840Mi",
            "enforcedBy": "driver",
            "share": 0,
        },
    }


def test_a_limit_that_nothing_enforces_is_a_condition() -> None:
    claim, devices = prepared(NodeOfClaims().without_driver_limits())
    (entry,) = device_entries(claim, devices, NOW)
    condition = entry["conditions"][1]
    assert (condition["type"], condition["status"]) == ("Degraded", "True")
    assert condition["reason"] == "MemoryLimitNotEnforced"


def test_entries_of_other_drivers_remain() -> None:
    ours: Any = device_entries(*prepared(NodeOfClaims()), NOW)
    old = {**ours[0], "data": {"uuid": "old"}}
    nic = {"driver": "dra.net", "pool": "node1", "device": "nic-0"}
    document = allocated(A, result("gpu-0", shareID=SHARE), devices=[nic, old])
    changed = with_entries(document, A, ours)
    assert changed is not None
    assert changed["status"]["devices"] == [nic, *ours]
    assert changed["status"]["allocation"] == document["status"]["allocation"]


def test_a_claim_that_is_another_one_or_not_allocated_is_left_alone() -> None:
    ours = device_entries(*prepared(NodeOfClaims()), NOW)
    document = allocated(A, result("gpu-0", shareID=SHARE))
    assert with_entries(document, named("b"), ours) is None
    assert with_entries({**document, "status": {}}, A, ours) is None
    assert with_entries(allocated(A, result("gpu-1")), A, ours) is None


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with serving(tmp_path) as made:
        claim = allocated(A, result("gpu-0", shareID=SHARE))
        made.store.add(claim)
        yield made


def statuses(cluster: Cluster) -> list[Any]:
    claim = cluster.store.get("resourceclaims", "a", "default")
    return list(claim.get("status", {}).get("devices", []))


def put(cluster: Cluster) -> ClaimStatus:
    writer = ClaimStatus(ApiServer(cluster.access))
    writer.put(*_of_server(cluster))
    return writer


def _of_server(cluster: Cluster) -> tuple[PreparedClaim, list[PoolDevice]]:
    claim, devices = prepared(NodeOfClaims())
    uid = cluster.store.get("resourceclaims", "a", "default")["metadata"]["uid"]
    name = type(A)(A.namespace, A.name, uid)
    return PreparedClaim(
        type(claim.claim)(name, claim.claim.devices), (), shares=claim.shares
    ), devices


def test_the_status_is_written_in_the_background(cluster: Cluster) -> None:
    put(cluster)
    eventually(lambda: statuses(cluster), "the status of the claim")
    (entry,) = statuses(cluster)
    assert entry["data"]["memoryLimit"] == "3840Mi"


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_an_older_version_of_the_api(cluster: Cluster, version: str) -> None:
    cluster.versions = (version,)
    put(cluster)
    eventually(lambda: statuses(cluster), "the status of the claim")


def test_a_conflict_is_tried_again(cluster: Cluster) -> None:
    cluster.faults.append(Fault("update", "resourceclaims", count=2, status=409))
    put(cluster)
    eventually(lambda: statuses(cluster), "the status of the claim")


@pytest.mark.parametrize("status", [403, 500])
def test_a_failure_is_one_warning(cluster: Cluster, status: int) -> None:
    cluster.faults.append(Fault("update", "resourceclaims", count=99, status=status))
    with capture_logs() as lines:
        writer = put(cluster)
        for _ in range(2):
            writer.put(*_of_server(cluster))
        eventually(lambda: cluster.count("update", plural="resourceclaims") >= 3, "three tries")
        eventually(lambda: lines, "a warning")
        cluster.faults.clear()
        writer.put(*_of_server(cluster))
        eventually(lambda: statuses(cluster), "the status, after the failures")
    (line,) = lines
    assert line["code"] == "GH2624"
    assert line["log_level"] == "warning"
    assert "the status of claim default/a is not written" in line["event"]


def test_a_deleted_claim_is_no_failure(cluster: Cluster) -> None:
    claim = _of_server(cluster)
    cluster.store.objects.clear()
    writer = ClaimStatus(ApiServer(cluster.access))
    writer.put(*claim)
    eventually(lambda: cluster.count("get", plural="resourceclaims") >= 1, "a read")
    assert cluster.count("update", plural="resourceclaims") == 0
