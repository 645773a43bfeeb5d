# SPDX-License-Identifier: Apache-2.0
"""The containers that hold GPUs, as JSON, made of entries of the ledger."""

from __future__ import annotations

from gpuhook.containers.hot import ledger_warnings
from gpuhook.device_plugin.gpu_policies import saved_policies
from gpuhook.device_plugin.health import recovery_evidence
from gpuhook.memory_limits import guard_state
from gpuhook.memory_limits.warm import limit_records
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.usage import container_sharing
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.usage import device_isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

    from gpuhook.memory_limits.guard_state import Watched
    from gpuhook.memory_limits.warm.limit_records import LimitRecord


def holders_of(
    entries: Iterable[dict[str, Any]],
    by_node: dict[str, str],
    *,
    is_judged: bool,
    parts: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Return the containers that hold GPUs; `is_judged`: with how the GPUs are shared.

    `by_node` has device node -> id, `parts` are parts of a GPU. Device plugins do not share GPUs
    with others.
    """
    turns, watched = _turns(), guard_state.watched()
    listed = [(entry, _entry_document(entry, by_node)) for entry in entries]
    kept = [(entry, one) for entry, one in listed if one["gpus"] or not one["withdrawn"]]
    for entry, one in kept:
        one["device_plugin"] = entry["device_plugin"]
    holders = container_sharing.holder_counts(
        one["gpus"] for _, one in kept if not one["device_plugin"]
    )
    for entry, one in kept:
        one["turns"] = {gpu: turns[gpu] for gpu in one["gpus"] if turns.get(gpu)}
        one["memory"] = _with_guard(one["memory"], guard_state.guarded_devices(one["id"], watched))
        if is_judged:
            spec = container_sharing.config(entry)
            one["sharing"] = container_sharing.sharing_of(
                spec, one["gpus"], one["replicas"], holders, one["memory"], parts=parts
            )
    return [one for _, one in kept]


def _with_guard(
    memory: list[dict[str, Any]], watched: Mapping[str, Watched]
) -> list[dict[str, Any]]:
    """Return the limits of the ledger with the guard's state, and further limits of the guard."""
    recorded = {limit["gpu"] for limit in memory}
    found = [
        {**limit, "guard": guard_state.document(watched.get(limit["gpu"]))} for limit in memory
    ]
    found += [
        {
            "gpu": gpu,
            "limit": one.limit,
            "request": 0,
            "by": device_isolation.BY_NOBODY,
            "trouble": "",
            "guard": guard_state.document(one),
        }
        for gpu, one in watched.items()
        if gpu not in recorded
    ]
    for limit in found:
        if limit["by"] == device_isolation.BY_NOBODY:
            limit["by"] = guard_state.by(watched.get(limit["gpu"]))
    return found


def _turns() -> dict[str, dict[str, str]]:
    """Return UUID -> time slice and compute mode, as far as they are known.

    They are the values that the device plugin and claims have set, else those that generate-cdi
    recorded.
    """
    found = {gpu: turns for vendor in vendors() for gpu, turns in vendor.noted_turns().items()}
    boot = recovery_evidence.boot_id()
    for file in saved_policies.FILES:
        for (gpu, kind), note in saved_policies.read(boot, file).items():
            found.setdefault(gpu, {})[kind.replace(" ", "_")] = note.ours
    return found


def _entry_document(entry: dict[str, Any], by_node: dict[str, str]) -> dict[str, Any]:
    """Return a ledger entry as JSON: its container, its GPUs and its warnings.

    `by_node` has device node -> UUID of the GPUs and MIG instances in generate-cdi's inventory;
    others have the names of the request. `since` is in seconds since the epoch.
    """
    gpus = _gpus(entry, by_node)
    return {
        "id": entry["id"],
        "pod": entry.get("pod"),
        "namespace": entry.get("namespace"),
        "container": entry.get("container"),
        "gpus": gpus,
        "replicas": entry.get("replicas") or [],
        "claims": entry.get("claims") or [],
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
    """Return the memory limit of one GPU in bytes, null for none; `by`: what enforces it."""
    limit, is_enforced = record.limit, record.is_enforced and record.is_limited
    return {
        "gpu": limit.device,
        "limit": None if limit.hard == NO_LIMIT else limit.hard,
        "request": limit.soft,
        "by": record.by if is_enforced else device_isolation.BY_NOBODY,
        "trouble": record.trouble,
    }


def _gpus(entry: dict[str, Any], by_node: dict[str, str]) -> list[str]:
    """Return the GPUs of an entry, by the device nodes that the container has.

    A container that got its GPUs from another stack and a limit from gpuhook has the limited GPUs.
    """
    nodes = [path for path in entry.get("nodes") or () if path in by_node]
    if nodes:
        return [by_node[path] for path in nodes]
    named = [name.partition("=")[2] or name for name in entry.get("devices") or ()]
    return named or list(limit_records.records_of(entry))
