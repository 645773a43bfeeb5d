# SPDX-License-Identifier: Apache-2.0
"""Objects of resource.k8s.io in their versions; the server keeps those of v1.

In v1beta1 the fields of a device are below `basic`, and those of a request are not below `exactly`.
"""

from __future__ import annotations

import copy

from tests.cluster_api.object_kinds import DRA, Object

OLD = "v1beta1"


def to_stored(kind: str, one: Object, version: str) -> Object:
    """Return an object that a client sent in `version` as one of v1."""
    found = copy.deepcopy(one)
    if found.get("apiVersion", "").startswith(DRA):
        found["apiVersion"] = f"{DRA}/v1"
    if version == OLD:
        for device in _devices(kind, found):
            if set(device) - {"name", "basic"}:
                raise ValueError(f"spec.devices: unknown fields {sorted(set(device) - {'basic'})}")
            device.update(device.pop("basic", {}))
        for request in _requests(kind, found):
            if "firstAvailable" not in request:
                fields = {name: request.pop(name) for name in set(request) - {"name"}}
                request["exactly"] = fields
    return found


def to_served(kind: str, one: Object, version: str) -> Object:
    """Return a stored object in `version`."""
    found = copy.deepcopy(one)
    if found.get("apiVersion", "").startswith(DRA):
        found["apiVersion"] = f"{DRA}/{version}"
    if version == OLD:
        for device in _devices(kind, found):
            device["basic"] = {name: device.pop(name) for name in set(device) - {"name"}}
        for request in _requests(kind, found):
            request.update(request.pop("exactly", {}))
    return found


def _devices(kind: str, one: Object) -> list[Object]:
    return (one.get("spec") or {}).get("devices") or [] if kind == "ResourceSlice" else []


def _requests(kind: str, one: Object) -> list[Object]:
    spec = one.get("spec") or {}
    if kind == "ResourceClaimTemplate":
        spec = spec.get("spec") or {}
    is_claim = kind in ("ResourceClaim", "ResourceClaimTemplate")
    return (spec.get("devices") or {}).get("requests") or [] if is_claim else []
