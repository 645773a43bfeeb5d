# SPDX-License-Identifier: Apache-2.0
"""ResourceClaims with an allocation, as the scheduler writes it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from gpuhook.dra.claims.claim import ClaimName
from tests.cluster_api.cluster_server import Cluster

Document = dict[str, Any]


def uid_of(name: str) -> str:
    """Return the UID that the claims of the tests have by their names."""
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


def named(name: str, namespace: str = "default") -> ClaimName:
    return ClaimName(namespace, name, uid_of(f"{namespace}/{name}"))


def result(device: str, request: str = "gpu", **more: Any) -> Document:
    """Return a result of an allocation; `more` replaces or adds fields."""
    own = {"request": request, "driver": "gpu.nvidia.com", "pool": "node1", "device": device}
    return {**own, **more}


def allocated(
    name: ClaimName, *results: Document, config: Sequence[Document] = (), **status: Any
) -> Document:
    """Return a claim whose allocation has these results."""
    devices: Document = {"results": list(results)}
    if config:
        devices["config"] = list(config)
    requests = dict.fromkeys(one["request"].partition("/")[0] for one in results)
    exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": name.namespace, "name": name.name, "uid": name.uid},
        "spec": {"devices": {"requests": [{"name": one, "exactly": exactly} for one in requests]}},
        "status": {"allocation": {"devices": devices}, **status},
    }


def stored(cluster: Cluster, name: str, *results: Document, **more: Any) -> ClaimName:
    """Add a claim to the API server, and return it with the UID that the server gives it."""
    made = cluster.store.add(allocated(named(name), *results, **more))
    return ClaimName("default", name, made["metadata"]["uid"])
