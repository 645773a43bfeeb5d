# SPDX-License-Identifier: Apache-2.0
"""What an API server knows: its kinds, the objects of a collection, a patch, an object's bytes."""

from __future__ import annotations

import base64
import json
from typing import Any

Object = dict[str, Any]
Fields = dict[int, list[bytes]]

# group/version -> kinds; those with a star have no namespace.
KINDS = {
    "v1": "Namespace* Node* Pod Secret ConfigMap Service ServiceAccount Event",
    "apps/v1": "DaemonSet ControllerRevision",
    "rbac.authorization.k8s.io/v1": "ClusterRole* ClusterRoleBinding* Role RoleBinding",
    "node.k8s.io/v1": "RuntimeClass*",
    "resource.k8s.io/v1": "DeviceClass* ResourceSlice* ResourceClaim ResourceClaimTemplate",
    "admissionregistration.k8s.io/v1": "ValidatingAdmissionPolicy* "
    "ValidatingAdmissionPolicyBinding*",
    "coordination.k8s.io/v1": "Lease",
    "monitoring.coreos.com/v1": "ServiceMonitor PrometheusRule",
    "nvidia.com/v1": "ClusterPolicy*",
}
PLURALS = {
    "ClusterPolicy": "clusterpolicies",
    "DeviceClass": "deviceclasses",
    "RuntimeClass": "runtimeclasses",
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
}
VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


def plural(kind: str) -> str:
    """Return the name of a kind in paths."""
    return PLURALS.get(kind, f"{kind.lower()}s")


def discovery(path: str) -> Object | None:
    if path == "/version":
        return {"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [group.split("/") for group in KINDS if group != "v1"]
        return {
            "kind": "APIGroupList",
            "apiVersion": "v1",
            "groups": [
                {"name": name, "versions": [both], "preferredVersion": both}
                for name, version in groups
                for both in [{"groupVersion": f"{name}/{version}", "version": version}]
            ],
        }
    group = path.removeprefix("/apis/").removeprefix("/api/")
    if group not in KINDS:
        return None
    resources = [
        {
            "name": plural(kind.rstrip("*")),
            "singularName": kind.rstrip("*").lower(),
            "kind": kind.rstrip("*"),
            "namespaced": not kind.endswith("*"),
            "verbs": VERBS,
        }
        for kind in KINDS[group].split()
    ]
    if group == "v1":
        eviction = {"name": "pods/eviction", "singularName": "", "namespaced": True}
        eviction |= {"group": "policy", "version": "v1", "kind": "Eviction"}
        resources.append({**eviction, "verbs": ["create"]})
    return {"kind": "APIResourceList", "groupVersion": group, "resources": resources}


def kind(path: str) -> tuple[str, str]:
    """Return kind and group/version of a collection."""
    parts = path.strip("/").split("/")
    group = parts[1] if parts[0] == "api" else "/".join(parts[1:3])
    kinds = {plural(kind): kind for kind in KINDS.get(group, "").replace("*", "").split()}
    return kinds.get(parts[-1], ""), group


def is_collection(path: str) -> bool:
    return bool(kind(path)[0])


def selected(objects: dict[str, Object], path: str, query: dict[str, list[str]]) -> list[Object]:
    """Return the objects of a collection, in one namespace or in all."""
    name = path.rpartition("/")[2]
    start = path.removesuffix(f"/{name}")
    found = [
        one
        for place, one in objects.items()
        if place.startswith(f"{start}/") and place.split("/")[-2] == name
    ]
    for term in ",".join(query.get("labelSelector", [])).split(","):
        key, is_given, value = term.partition("=")
        if is_given and not key.endswith("!"):
            labels = [one["metadata"].get("labels", {}) for one in found]
            found = [one for one, have in zip(found, labels, strict=True) if have.get(key) == value]
    for term in ",".join(query.get("fieldSelector", [])).split(","):
        key, is_given, value = term.partition("=")
        if is_given and not key.endswith("!"):
            found = [one for one in found if _field(one, key) == value]
    return found


def _field(one: Object, key: str) -> Any:
    found: Any = one
    for part in key.split("."):
        found = found.get(part, {}) if isinstance(found, dict) else {}
    return found


def merged(old: Any, patch: Any) -> Any:
    """Return the result of a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    base = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = merged(base.get(key), value)
    return base


def decoded(body: bytes) -> Any:
    """Return the object of a request: JSON, or what is needed of a protobuf message."""
    if not body.startswith(b"k8s\0"):
        return json.loads(body)
    unknown = _fields(body[4:])
    kind, raw = _fields(unknown[1][0]), _fields(unknown[2][0])
    meta = _fields(raw[1][0])
    names = {1: "name", 2: "generateName", 3: "namespace"}
    metadata: Object = {
        name: meta[n][0].decode() for n, name in names.items() if any(meta.get(n, []))
    }
    metadata["labels"] = {key: value.decode() for key, value in _entries(meta.get(11, []))}
    found = {"apiVersion": kind[1][0].decode(), "kind": kind[2][0].decode(), "metadata": metadata}
    if found["kind"] == "Secret":
        data = {key: base64.b64encode(value).decode() for key, value in _entries(raw.get(2, []))}
        found |= {"data": data, "type": raw[3][0].decode()}
    if found["kind"] == "Pod":
        containers = [_fields(one) for one in _fields(raw[2][0])[2]]
        spec = [{"name": one[1][0].decode(), "image": one[2][0].decode()} for one in containers]
        found["spec"] = {"containers": spec}
    return found


def _entries(entries: list[bytes]) -> list[tuple[str, bytes]]:
    pairs = [_fields(entry) for entry in entries]
    return [(pair[1][0].decode(), pair.get(2, [b""])[0]) for pair in pairs]


def _fields(data: bytes) -> Fields:
    """Return the fields of a protobuf message that have a length, by their number."""
    found: Fields = {}
    place = 0
    while place < len(data):
        key, place = _number(data, place)
        size, place = _number(data, place)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(data[place : place + size])
            place += size
        else:
            assert key & 7 == 0, "a number of fixed size"
    return found


def _number(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (data[place] & 0x7F) << shift
        shift, place = shift + 7, place + 1
        if not data[place - 1] & 0x80:
            return number, place
