# SPDX-License-Identifier: Apache-2.0
"""From values to a prepared claim: the rendered container's variables start the real driver.

Each of its calls to the API server must be allowed by the ClusterRole and the admission policies.
"""

from __future__ import annotations

from typing import Any

import yaml

from gpuhook.dra.claims.claim import ClaimName
from tests.charts.rendering import ROOT, container, one, variables
from tests.charts.test_dra_admission import NODE as TOKEN_NODE
from tests.charts.test_dra_admission import denial, policy
from tests.cluster_api.cluster_server import Call, Cluster
from tests.kubelet.allocated_claims import result, stored
from tests.kubelet.dra_kubelet import DraKubelet
from tests.kubelet.dra_process import NODE
from tests.kubelet.dra_running import RunDra, cluster, dra_kubelet, run_dra
from tests.waiting import eventually

__all__ = ["cluster", "dra_kubelet", "run_dra"]
DRIVER, USER = "gpu.nvidia.com", "system:serviceaccount:gpuhook:gpuhook-dra"
# Those of the harness: directories of the test, and the configuration that it writes.
OF_THE_TEST = {"CONFIG_FILE", "CONTAINER_DRIVER_ROOT", "NODE_NAME", "NVIDIA_CDI_HOOK_PATH"}


def manifest() -> list[dict[str, Any]]:
    """Return the objects of dra.yaml."""
    text = (ROOT / "packaging/kubernetes/dra.yaml").read_text(encoding="utf-8")
    return [obj for obj in yaml.safe_load_all(text) if obj]


def is_allowed(call: Call, rules: list[dict[str, Any]]) -> bool:
    resource = "/".join(filter(None, (call.plural, call.part)))
    group = "resource.k8s.io" if call.version else ""
    return any(
        group in rule["apiGroups"] and resource in rule["resources"] and call.verb in rule["verbs"]
        for rule in rules
    )


def test_manifest_prepares_a_claim(
    run_dra: RunDra, dra_kubelet: DraKubelet, cluster: Cluster
) -> None:
    objects = manifest()
    for obj in objects:
        if obj["kind"] == "DeviceClass":
            cluster.store.add(obj)
    env = variables(objects, "-dra")
    assert env["CONFIG_FILE"] == "/available-configs/default"
    text = one(objects, "ConfigMap")["data"]["default"]
    own = {name: value for name, value in env.items() if name not in OF_THE_TEST}
    assert container(objects, "-dra")["args"] == ["dra", "run"]
    run_dra("h100x8", text, **(own | {"POD_UID": "7d0e9f2c-6f5e-4a53-9d7e-0c1b2a3f4e5d"}))
    eventually(cluster.store.slices)
    (published,) = cluster.store.slices()
    device = published["spec"]["devices"][0]
    assert device["capacity"]["slots"]["value"] == "4"
    share: dict[str, Any] = {
        "shareID": "11111111-2222-3333-4444-555555555555",
        "consumedCapacity": {"slots": "1", "memory": "20325Mi"},
    }
    claims = [
        stored(cluster, "one", result(device["name"], **share)),
        stored(cluster, "two", result(published["spec"]["devices"][1]["name"])),
    ]
    assert_prepared(dra_kubelet, *claims)
    rules = one(objects, "ClusterRole", "-dra")["rules"]
    usual = {"get", "list", "watch", "create"}
    eventually(lambda: {call.verb for call in cluster.calls} >= usual, "calls")
    assert [call for call in cluster.calls if not is_allowed(call, rules)] == []
    user = {"username": USER, "extra": {TOKEN_NODE: [NODE]}}
    change = {"request": {"operation": "CREATE", "userInfo": user}, "oldObject": None}
    assert denial(policy(objects, "-slices"), change | {"object": published}) is None


def assert_prepared(kubelet: DraKubelet, *claims: ClaimName) -> None:
    """Assert that the kubelet gets a CDI device for each claim, and can end them."""
    answers = kubelet.prepare(DRIVER, *claims)
    for claim in claims:
        answer = answers[claim.uid]
        assert answer.error == ""
        assert answer.devices[0].cdi_device_ids
    assert not any(answer.error for answer in kubelet.unprepare(DRIVER, *claims).values())
