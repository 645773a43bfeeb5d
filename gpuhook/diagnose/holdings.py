# SPDX-License-Identifier: Apache-2.0
"""What a ledger entry means in people's terms: GPUs by UUID, whatever the container called them."""

from __future__ import annotations

from typing import Any


def of(entry: dict[str, Any], by_node: dict[str, str]) -> dict[str, Any]:
    """Return the finding for one ledger entry: id, pod, namespace, gpus, replicas, route, since.

    `by_node` has the UUIDs of GPUs and MIG instances by a device node of their own, as far as
    generate-cdi has left its inventory on this node; others go by the names that were used.
    `since` is in seconds of the epoch.
    """
    gpus = _gpus(entry, by_node)
    return {
        "id": entry["id"],
        "pod": entry.get("pod"),
        "namespace": entry.get("namespace"),
        "container": entry.get("container"),
        "gpus": gpus,
        "replicas": entry.get("replicas") or [],
        "requested": entry.get("requested") or [],
        "source": entry.get("source") or "",
        "route": entry.get("route") or "",
        "runtime": entry.get("runtime") or "",
        "bundle": entry.get("bundle") or "",
        "milliseconds": entry.get("milliseconds"),
        "since": entry["since"],
        "withdrawn": entry.get("withdrawn") or [],
    }


def _gpus(entry: dict[str, Any], by_node: dict[str, str]) -> list[str]:
    """Return the GPUs of an entry: by its device nodes, which are what a container really has."""
    nodes = [path for path in entry.get("nodes") or () if path in by_node]
    if nodes:
        return [by_node[path] for path in nodes]
    return [name.partition("=")[2] or name for name in entry.get("devices") or ()]
