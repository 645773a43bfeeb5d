# SPDX-License-Identifier: Apache-2.0
"""The node's object in the API server, and its labels."""

from __future__ import annotations

from gpuhook.device_plugin.api_server.client import METADATA_ONLY, Purpose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer, Changes

_READ = Purpose("get", "nodes", "the node's label that selects a configuration")
_WATCH = Purpose("watch", "nodes", "the node's label that selects a configuration")
_LABEL = Purpose("patch", "nodes", "feature labels without node feature discovery")


def path(node: str) -> str:
    from urllib.parse import quote

    return f"/api/v1/nodes/{quote(node, safe='')}"


def labels(server: ApiServer, node: str) -> tuple[dict[str, str], str]:
    """Return the labels of a node and their resourceVersion. Raises GH1862 to GH1864."""
    metadata = server.get(path(node), _READ, accept=METADATA_ONLY)
    return labels_of(metadata), version_of(metadata)


def watch(server: ApiServer, node: str, version: str, seconds: int) -> Changes:
    """Return the changes of a node since `version`. Raises GoneError, GH1862 to GH1864."""
    query = {
        "fieldSelector": f"metadata.name={node}",
        "resourceVersion": version,
        "allowWatchBookmarks": "true",
    }
    return server.watch("/api/v1/nodes", _WATCH, query, seconds)


def set_labels(server: ApiServer, node: str, changes: Mapping[str, str | None]) -> None:
    """Set labels of a node; None removes one. Raises GH1862 to GH1864."""
    server.patch(path(node), {"metadata": {"labels": dict(changes)}}, _LABEL)


def labels_of(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels of any object, without values that are not text."""
    labels = _metadata(document).get("labels")
    if not isinstance(labels, dict):
        return {}
    return {name: value for name, value in labels.items() if isinstance(value, str)}


def version_of(document: Mapping[str, Any]) -> str:
    """Return the resourceVersion of any object, "" without one."""
    return str(_metadata(document).get("resourceVersion") or "")


def _metadata(document: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
