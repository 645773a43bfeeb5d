# SPDX-License-Identifier: Apache-2.0
"""What a ledger entry means in people's terms: GPUs by UUID, whatever the container called them."""

from __future__ import annotations

from typing import Any

from gpuhook.containers.hot import ledger_warnings
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.memory_limits.warm.limit_records import LimitRecord


def entry_document(entry: dict[str, Any], by_node: dict[str, str]) -> dict[str, Any]:
    """Return the finding for one ledger entry: its container, its GPUs, its warnings.

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
        "memory": [_limit(record) for record in limit_records.records_of(entry).values()],
        "warnings": ledger_warnings.read(entry),
    }


def _limit(record: LimitRecord) -> dict[str, Any]:
    """Return the limit of one GPU's memory: bytes, null for none; `by` nobody where none holds."""
    limit, is_held = record.limit, record.by == limit_records.DRIVER and record.is_limited
    return {
        "gpu": limit.device,
        "limit": None if limit.hard == NO_LIMIT else limit.hard,
        "request": limit.soft,
        "by": limit_records.DRIVER if is_held else "nobody",
        "trouble": record.trouble,
    }


def _gpus(entry: dict[str, Any], by_node: dict[str, str]) -> list[str]:
    """Return the GPUs of an entry: by its device nodes, which are what a container really has.

    One that got its GPUs from somebody else, and a limit from us, has those that are limited.
    """
    nodes = [path for path in entry.get("nodes") or () if path in by_node]
    if nodes:
        return [by_node[path] for path in nodes]
    named = [name.partition("=")[2] or name for name in entry.get("devices") or ()]
    return named or list(limit_records.records_of(entry))
