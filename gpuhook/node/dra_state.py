# SPDX-License-Identifier: Apache-2.0
"""The cluster's data on Dynamic Resource Allocation for this node, from its API server."""

from __future__ import annotations

from urllib.parse import quote

from gpuhook.device_plugin.api_server.client import is_missing
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Get = Callable[[str, str, str], dict[str, Any]]  # path of the API, resource, name
    Create = Callable[[str, dict[str, Any], str], dict[str, Any]]  # path, object, resource

_GROUP = "/apis/resource.k8s.io"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_MISSING = ("NotFound", "could not find the requested resource")  # of kubectl
# What a driver needs: (verb, group, resource, subresource).
_NEEDED = (
    ("get", "", "nodes", ""),
    ("get", "resource.k8s.io", "resourceclaims", ""),
    ("update", "resource.k8s.io", "resourceclaims", "status"),
    *(
        (verb, "resource.k8s.io", "resourceslices", "")
        for verb in ("list", "watch", "create", "update", "delete")
    ),
)
# From 1.36 on, also for one of the drivers by name.
_OF_DRIVER = ("associated-node:update", "resource.k8s.io", "resourceclaims", "driver")
_FIRST_OF_DRIVER = 36
_MOST_DIGITS = 4


def dra_state(get: Get, create: Create, node: str) -> dict[str, Any]:
    """Return the data on DRA.

    {"minor": of the server's version, "versions": of the API, "slices": [{"driver", "pool",
    "generation", "count", "devices": names, "replicas": whether devices are slots of one GPU}],
    "classes": [{"name", "extendedResourceName"}], "drivers": [{"namespace", "name",
    "serviceAccount", "missing": permissions}], "terminating": [pods with claims that do not end],
    "refused": {part: reason}}. Raises what `get` raises, if the API server does not answer.
    """
    minor = str(get("/version", "version", "").get("minor", "")).rstrip("+")
    is_number = minor.isdecimal() and len(minor) <= _MOST_DIGITS
    found: dict[str, Any] = {"minor": int(minor) if is_number else None, "versions": []}
    try:
        group = get(_GROUP, "resource.k8s.io", "")
    except GpuhookError as error:
        if is_missing(error) or any(text in error.message for text in _MISSING):
            return found
        raise
    served = {str(one.get("version")) for one in fastjson.objects(group, "versions")}
    found["versions"] = [one for one in ("v1", "v1beta2", "v1beta1") if one in served]
    if not found["versions"]:
        return found
    base, selected = (
        f"{_GROUP}/{found['versions'][0]}",
        f"?fieldSelector=spec.nodeName%3D{quote(node)}",
    )
    parts: tuple[tuple[str, Callable[[], Any]], ...] = (
        (
            "slices",
            lambda: [*_slices(get(f"{base}/resourceslices{selected}", "resourceslices", ""))],
        ),
        ("classes", lambda: [*_classes(get(f"{base}/deviceclasses", "deviceclasses", ""))]),
        (
            "drivers",
            lambda: [
                *_drivers(get("/apis/apps/v1/daemonsets", "daemonsets", ""), create, found["minor"])
            ],
        ),
        ("terminating", lambda: [*_ending(get(f"/api/v1/pods{selected}", "pods", ""))]),
    )
    refused: dict[str, str] = {}
    for part, ask in parts:
        try:
            found[part] = ask()
        except GpuhookError as error:
            refused[part] = error.message
    return {**found, "refused": refused}


def _slices(listed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for spec in (fastjson.fields(one, "spec") for one in fastjson.objects(listed, "items")):
        pool, devices = fastjson.fields(spec, "pool"), fastjson.objects(spec, "devices")
        inner = [fastjson.fields(one, "basic") or one for one in devices]  # v1beta1
        yield {
            "driver": spec.get("driver"),
            "pool": pool.get("name"),
            "generation": pool.get("generation"),
            "count": pool.get("resourceSliceCount"),
            "devices": [one.get("name") for one in devices],
            "replicas": any("replica" in fastjson.fields(one, "attributes") for one in inner),
        }


def _classes(listed: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for one in fastjson.objects(listed, "items"):
        yield {
            "name": fastjson.fields(one, "metadata").get("name"),
            "extendedResourceName": fastjson.fields(one, "spec").get("extendedResourceName"),
        }


def _drivers(
    listed: Mapping[str, Any], create: Create, minor: int | None
) -> Iterator[dict[str, Any]]:
    """Yield the DaemonSets of DRA drivers for GPUs, with the permissions that they lack."""
    for one in fastjson.objects(listed, "items"):
        metadata = fastjson.fields(one, "metadata")
        name, space = str(metadata.get("name")), str(metadata.get("namespace"))
        if not (name.endswith("-dra") or "dra-driver" in name) or "cpu" in name:
            continue
        pod = fastjson.fields(one, "spec", "template", "spec")
        account = str(pod.get("serviceAccountName") or "default")
        missing = [*_denied(f"system:serviceaccount:{space}:{account}", create, minor)]
        yield {"namespace": space, "name": name, "serviceAccount": account, "missing": missing}


def _denied(user: str, create: Create, minor: int | None) -> Iterator[str]:
    for needed in _NEEDED:
        if not _is_allowed(user, create, needed):
            yield _text(*needed)
    if (minor or 0) >= _FIRST_OF_DRIVER:
        names = [vendor.dra_driver for vendor in vendors()]
        if not any(_is_allowed(user, create, _OF_DRIVER, name) for name in names):
            yield _text(*_OF_DRIVER)


def _text(verb: str, _group: str, resource: str, subresource: str) -> str:
    return f"{verb} {resource}{'/' if subresource else ''}{subresource}"


def _is_allowed(user: str, create: Create, needed: tuple[str, ...], name: str = "") -> bool:
    words = ("verb", "group", "resource", "subresource", "name")
    attributes = {word: one for word, one in zip(words, (*needed, name), strict=True) if one}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = create(_REVIEWS, review, "subjectaccessreviews")
    return fastjson.fields(answer, "status").get("allowed") is True


def _ending(listed: Mapping[str, Any]) -> Iterator[str]:
    for one in fastjson.objects(listed, "items"):
        metadata, status = fastjson.fields(one, "metadata"), fastjson.fields(one, "status")
        has_claims = fastjson.array(one, "spec", "resourceClaims")
        if metadata.get("deletionTimestamp") and (
            has_claims or status.get("extendedResourceClaimStatus")
        ):
            yield f"{metadata.get('namespace')}/{metadata.get('name')}"
