# SPDX-License-Identifier: Apache-2.0
"""Objects of the API server: slices, claims, and what doctor reads of a node."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpuhook.dra.api.resource_api import VERSIONS
from gpuhook.dra.claims import claim_reader, claim_status
from gpuhook.dra.claims.claim import ClaimName
from gpuhook.dra.pool.pool_device import Taint
from gpuhook.dra.slices import server_form, slice_client, slice_layout, slice_plan
from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.node import dra_state, kubernetes_state
from tests.fuzz.fuzz_target import fuzz_target
from tests.fuzz.targets.kubernetes_targets import PARAMETERS
from tests.unit.dra.pools import device, pool_of

POOL = pool_of(device(1, taints=(Taint("gpu.nvidia.com/x"),)))
TAINT = {"key": "gpu.nvidia.com/x", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
DEVICE = {"name": "gpu-1", "basic": {"taints": [TAINT], "attributes": {"replica": {"int": 1}}}}
OBJECT = {
    "metadata": {"name": "00000-a", "uid": "u", "resourceVersion": "7"},
    "spec": {"pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [DEVICE]},
}
RESULT = {"driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-1", "request": "gpu",
          "consumedCapacity": {"memory": "1Gi"}}  # fmt: skip
ALLOCATED = {
    "metadata": {"uid": "u"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"capacity": {"requests": {}}}}]}},
    "status": {
        "allocation": {"devices": {"results": [RESULT], "config": [{"opaque": PARAMETERS}]}},
        "devices": [RESULT],
    },
}  # fmt: skip
NODE = {
    "metadata": {"name": "a-device-plugin-dra", "labels": {"a": "b"}, "deletionTimestamp": "x"},
    "spec": {"template": {"spec": {"containers": [{"image": "i"}]}}, "resourceClaims": [{}]},
    "status": {"conditions": [{"type": "Ready"}], "nodeInfo": {"kubeletVersion": "v1.34"}},
}


def objects() -> list[str]:
    listed = {"items": [OBJECT, NODE], "versions": [{"version": "v1"}], "minor": "36"}
    return [json.dumps(one) for one in (OBJECT, ALLOCATED, NODE, listed)]


class AnyServer:
    """An API server that answers each call with the same object."""

    def __init__(self, answer: dict[str, Any]) -> None:
        self.answer = answer

    def get(self, *_call: object, **_options: object) -> dict[str, Any]:
        return self.answer

    create = replace = get


@fuzz_target(objects, allowed=(ValueError, GpuhookError), size=8192)
def api_server_objects(data: bytes) -> None:
    """Slices, claims and what doctor reads, as any object of the API server."""
    server: Any = AnyServer(documents.parse_json_object(data))
    client = slice_client.SliceClient(server, "gpu.nvidia.com", "n")
    for version in VERSIONS:
        client.features = replace(client.features, version=version)
        stored, _ = client.list()
        stored.append(client.stored(server.answer))
        pool = server_form.with_times(POOL, (one.spec for one in stored), "now")
        assert all(isinstance(t.time_added, str) for one in pool.devices for t in one.taints)
        specs = slice_layout.slice_specs(pool, client.features)
        slice_plan.SliceLayout(specs, lambda *_: True).plan(stored)
    client.owner()
    name = ClaimName("ns", "c", "u")
    claim_status.with_entries(server.answer, name, [dict(RESULT)])
    dra_state.dra_state(server.get, server.create, "n")
    for reader in (
        kubernetes_state._node,
        kubernetes_state._classes,
        kubernetes_state._daemon_sets,
    ):
        reader(server.answer)
    with suppress(GpuhookError):
        client.probe()
    claim_reader.ClaimReader(server, "gpu.nvidia.com", "n").read(name)
