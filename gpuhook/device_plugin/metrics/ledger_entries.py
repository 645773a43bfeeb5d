# SPDX-License-Identifier: Apache-2.0
"""The ledger as the device plugin may read it: without judging which containers are alive.

In a pod the plugin sees neither the state directories of the runtimes nor, without hostPID, the
processes of the host. It must not take that for the end of all containers: it removes no entry.
"""

from __future__ import annotations

import os

from gpuhook.containers.hot import ledger
from gpuhook.device_plugin.metrics.container_memory import HolderEntry, MemoryLimitFact
from gpuhook.host.hot import files
from gpuhook.vendors.nvidia.gpu.sharing_isolation import BY_DRIVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.device_plugin.metrics.container_memory import Names

_MOST = 4096


def read() -> dict[str, HolderEntry]:
    """Return what the ledger says of each container, by id; of several of one id, the youngest."""
    return {entry["id"]: _entry(entry) for entry in documents()}


def documents() -> list[dict[str, Any]]:
    """Return the entries of the ledger as they are, oldest first."""
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


def names(entry: dict[str, Any]) -> Names:
    """Return how the container of an entry is called: outside of Kubernetes by its id."""
    return _entry(entry).names


def _entry(found: dict[str, Any]) -> HolderEntry:
    namespace, pod, container = (
        str(found.get(key) or "") for key in ("namespace", "pod", "container")
    )
    return HolderEntry(found["id"], namespace, pod, container, _units(found), _memory(found))


def _units(found: dict[str, Any]) -> tuple[str, ...]:
    """Return the replicas, and the devices that are held as such."""
    replicas = _strings(found.get("replicas"))
    devices = (name.rpartition("=")[2] for name in _strings(found.get("devices")))
    shared = {replica.partition("::")[0] for replica in replicas}
    return (*replicas, *(device for device in devices if device not in shared))


def _memory(found: dict[str, Any]) -> tuple[MemoryLimitFact, ...]:
    """Return the limits of its memory, the form of which is told in container/ledger.py."""
    records = found.get("memory")
    limits = (_limit(one) for one in records) if isinstance(records, list) else ()
    return tuple(limit for limit in limits if limit is not None)


def _limit(record: object) -> MemoryLimitFact | None:
    if not isinstance(record, dict):
        return None
    device, hard, soft = (record.get(key) for key in ("device", "hard", "soft"))
    if not (isinstance(device, str) and isinstance(hard, int) and isinstance(soft, int)):
        return None
    return MemoryLimitFact(device, hard, soft, is_held=record.get("by") == BY_DRIVER)


def _strings(found: object) -> list[str]:
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []
