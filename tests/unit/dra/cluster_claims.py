# SPDX-License-Identifier: Apache-2.0
"""Claims and classes for the API server of the tests."""

from __future__ import annotations

from typing import Any

from tests.cluster_api.object_kinds import Object

DRIVER = "gpu.nvidia.com"
_API = "resource.k8s.io/v1"


def device_class(
    name: str = DRIVER, *expressions: str, driver: str = DRIVER, **spec: Any
) -> Object:
    """Return a class of the devices of a driver."""
    texts = " && ".join((f"device.driver == '{driver}'", *expressions))
    own = {"selectors": [{"cel": {"expression": texts}}], **spec}
    return {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": own}


def request(name: str = "gpu", device_class: str = DRIVER, **exactly: Any) -> Object:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def memory(amount: str, **others: str) -> Object:
    """Return the capacity of a request."""
    return {"requests": {"memory": amount, **others}}


def claim(name: str, *requests: Object, **devices: Any) -> Object:
    """Return a claim in namespace `ns`; without a request, of one GPU."""
    spec = {"devices": {"requests": list(requests or (request(),)), **devices}}
    metadata = {"name": name, "namespace": "ns"}
    return {"apiVersion": _API, "kind": "ResourceClaim", "metadata": metadata, "spec": spec}


def results(claim: Object) -> list[Object]:
    found: list[Object] = claim["status"]["allocation"]["devices"]["results"]
    return found
