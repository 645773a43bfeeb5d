# SPDX-License-Identifier: Apache-2.0
"""The node's own object in the API server: its labels, and the pods that run on it."""

from __future__ import annotations

from gpuhook.kubernetes.api_server import METADATA_ONLY, Purpose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from typing import Any

    from gpuhook.kubernetes.api_server import ApiServer, Changes

_READ = Purpose("get", "nodes", "the node's label that chooses a configuration")
_WATCH = Purpose("watch", "nodes", "the node's label that chooses a configuration")
_LABEL = Purpose("patch", "nodes", "feature labels without node feature discovery")
_PODS = Purpose("list", "pods", "the names of the node's pods")


def path(node: str) -> str:
    """Return the path of a node's object."""
    from urllib.parse import quote

    return f"/api/v1/nodes/{quote(node, safe='')}"


def labels(server: ApiServer, node: str) -> tuple[dict[str, str], str]:
    """Return the labels of a node and their resourceVersion. Raises GH1862 to GH1864."""
    found = server.get(path(node), _READ, accept=METADATA_ONLY)
    return labels_of(found), version_of(found)


def watch(server: ApiServer, node: str, version: str, seconds: int) -> Changes:
    """Return the changes of a node since `version`. Raises GoneError, GH1862 to GH1864."""
    query = {
        "fieldSelector": f"metadata.name={node}",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
    }
    return server.watch("/api/v1/nodes", _WATCH, query, seconds)


def set_labels(server: ApiServer, node: str, wanted: Mapping[str, str | None]) -> None:
    """Give a node these labels; None takes one away. Raises GH1862 to GH1864."""
    server.patch(path(node), {"metadata": {"labels": dict(wanted)}}, _LABEL)


def pods_asking_for(
    server: ApiServer, node: str, resources: Collection[str]
) -> tuple[tuple[str, str], ...]:
    """Return (namespace, name) of the node's living pods that ask for any of `resources`, sorted.

    Raises GH1862 to GH1864.
    """
    found = server.get("/api/v1/pods", _PODS, {"fieldSelector": f"spec.nodeName={node}"})
    pods = found.get("items")
    return tuple(
        sorted(
            _name(pod)
            for pod in (pods if isinstance(pods, list) else [])
            if isinstance(pod, dict) and _is_living(pod) and _asks(pod, resources)
        )
    )


def labels_of(found: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of any object."""
    known = _metadata(found).get("labels")
    return dict(known) if isinstance(known, dict) else {}


def version_of(found: Mapping[str, Any]) -> str:
    """Return the resourceVersion of any object, "" where it has none."""
    return str(_metadata(found).get("resourceVersion") or "")


def _metadata(found: Mapping[str, Any]) -> Mapping[str, Any]:
    known = found.get("metadata")
    return known if isinstance(known, dict) else {}


def _name(pod: Mapping[str, Any]) -> tuple[str, str]:
    known = _metadata(pod)
    return str(known.get("namespace", "")), str(known.get("name", ""))


def _is_living(pod: Mapping[str, Any]) -> bool:
    status = pod.get("status")
    phase = status.get("phase") if isinstance(status, dict) else None
    return phase not in ("Succeeded", "Failed")


def _asks(pod: Mapping[str, Any], resources: Collection[str]) -> bool:
    return any(not wanted.isdisjoint(resources) for wanted in _limits(pod))


def _limits(pod: Mapping[str, Any]) -> Iterator[frozenset[str]]:
    """Yield the resources that each container of a pod is limited in: extended ones always are."""
    spec = pod.get("spec")
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind) if isinstance(spec, dict) else None
        for one in containers if isinstance(containers, list) else []:
            wanted = one.get("resources") if isinstance(one, dict) else None
            limits = wanted.get("limits") if isinstance(wanted, dict) else None
            yield frozenset(limits) if isinstance(limits, dict) else frozenset()
