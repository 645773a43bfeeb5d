# SPDX-License-Identifier: Apache-2.0
"""Reads the ledger without deciding which containers are alive.

In a pod the plugin sees neither the state directories of the runtimes nor, without hostPID, the
processes on the host, which does not mean that all containers have exited: it removes no entry.
"""

from __future__ import annotations

import os

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.metrics.container_memory import (
    ClaimedDevice,
    HolderEntry,
    MemoryLimitFact,
)
from gpuhook.host.hot import files
from gpuhook.request.memory_request import BY_DRIVER, BY_KERNEL
from gpuhook.vendors.usage.device_isolation import BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_MOST = 4096


def read() -> dict[str, HolderEntry]:
    """Return the containers of the ledger by id; of several with one id, the newest."""
    return {entry["id"]: holder_entry(entry) for entry in documents()}


def documents() -> list[dict[str, Any]]:
    """Return the parsed entries of the ledger, oldest first."""
    directory = ledger.directory()
    try:
        listed = sorted(os.listdir(directory))[:_MOST]
    except OSError:
        return []
    entries = [
        entry
        for name in listed
        if name.endswith(".json") and not files.is_temporary(name)
        if (entry := ledger.entry_at(os.path.join(directory, name))) is not None
        and ledger.is_holder(entry)
    ]
    return sorted(entries, key=lambda one: one["since"])


def holder_entry(document: dict[str, Any]) -> HolderEntry:
    """Return a parsed entry of the ledger as a HolderEntry."""
    namespace, pod, container = (
        str(document.get(key) or "") for key in ("namespace", "pod", "container")
    )
    units, memory, claims = _units(document), _memory(document), _claims(document)
    return HolderEntry(document["id"], namespace, pod, container, units, memory, claims)


def _units(document: dict[str, Any]) -> tuple[str, ...]:
    """Return the replicas, and the whole devices."""
    replicas = _strings(document.get("replicas"))
    devices = (name.rpartition("=")[2] for name in _strings(document.get("devices")))
    shared = {replica.partition("::")[0] for replica in replicas}
    return (*replicas, *(device for device in devices if device not in shared))


def _claims(document: dict[str, Any]) -> tuple[ClaimedDevice, ...]:
    """Return the devices of claims, without malformed ones."""
    keys = ("namespace", "claim", "share", "device")
    listed = document.get("claims")
    values = (
        [one.get(key) for key in keys]
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict)
    )
    return tuple(
        ClaimedDevice(f"{namespace}/{claim}", share, device)
        for namespace, claim, share, device in values
        if isinstance(share, str) and isinstance(device, str)
    )


def _memory(document: dict[str, Any]) -> tuple[MemoryLimitFact, ...]:
    """Return the memory limits; containers/hot/ledger.py documents their format."""
    records = document.get("memory")
    limits = (_limit(one) for one in records) if isinstance(records, list) else ()
    return tuple(limit for limit in limits if limit is not None)


def _limit(record: object) -> MemoryLimitFact | None:
    if not isinstance(record, dict):
        return None
    device, hard, soft = (record.get(key) for key in ("device", "hard", "soft"))
    if not isinstance(device, str) or type(hard) is not int:
        return None
    guaranteed = soft if type(soft) is int else 0
    by = record.get("by")
    return MemoryLimitFact(
        device, hard, guaranteed, by if by in (BY_DRIVER, BY_KERNEL) else BY_NOBODY
    )


def _strings(content: object) -> list[str]:
    return [one for one in content if isinstance(one, str)] if isinstance(content, list) else []
