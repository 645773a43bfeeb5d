# SPDX-License-Identifier: Apache-2.0
"""Writes what claims have into their `status.devices`, for people and programs without node access.

A separate thread does it, so that containers do not wait for it. A failure is a warning, reported
once for each reason. The API server removes the entries when a claim loses its allocation.
"""

from __future__ import annotations

import queue
from datetime import datetime, timezone
from threading import Thread

from gpuhook.device_plugin.api_server import client
from gpuhook.device_plugin.api_server.client import Purpose
from gpuhook.dra.api.resource_api import GROUP, ClaimApi
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson
from gpuhook.host.logs import logger
from gpuhook.request.memory_request import amount
from gpuhook.vendors.usage.device_isolation import BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.dra.claims.claim import AllocatedDevice, ClaimName
    from gpuhook.dra.claims.prepared_claim import PreparedClaim
    from gpuhook.dra.claims.settings.device_share import DeviceShare
    from gpuhook.dra.pool.pool_device import PoolDevice

_READ = Purpose("get", "resourceclaims", "status of claims", GROUP)
_WRITE = Purpose("update", "resourceclaims/status", "status of claims", GROUP)
_TRIES = 5  # of one claim: other drivers and the scheduler write the status, too
_MOST_WAITING = 1024  # claims; an API server that is away for long costs the newest ones


def device_entries(
    prepared: PreparedClaim, devices: Sequence[PoolDevice], now: str
) -> list[dict[str, Any]]:
    """Return the entries of a claim in `status.devices`; `devices` are those of its results."""
    results = zip(prepared.claim.devices, prepared.shares, devices, strict=True)
    return [_entry(result, share, found, now) for result, share, found in results]


def _entry(
    result: AllocatedDevice, share: DeviceShare, found: PoolDevice, now: str
) -> dict[str, Any]:
    conditions = [_condition("Ready", "Prepared", "the CDI spec of the claim is written", now)]
    if share.memory and share.enforcer == BY_NOBODY:
        text = f"nothing on the node enforces the limit of {amount(share.memory)}"
        conditions.append(_condition("Degraded", "MemoryLimitNotEnforced", text, now))
    data: dict[str, Any] = {"uuid": share.uuid, "index": found.device.index}
    if isinstance(found.attributes.get("minor"), int):
        data["minor"] = found.attributes["minor"]
    if share.memory:
        data |= {"memoryLimit": amount(share.memory), "enforcedBy": share.enforcer}
    if share.number is not None:
        data["share"] = share.number
    entry: dict[str, Any] = {"driver": result.driver, "pool": result.pool, "device": result.device}
    if result.share_id:
        entry["shareID"] = result.share_id
    return {**entry, "conditions": conditions, "data": data}


def _condition(kind: str, reason: str, message: str, now: str) -> dict[str, str]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


class ClaimStatus:
    """The thread that writes statuses."""

    def __init__(self, server: ApiServer) -> None:
        self._api = ClaimApi(server)
        self._waiting: queue.Queue[tuple[ClaimName, list[dict[str, Any]]]]
        self._waiting = queue.Queue(_MOST_WAITING)
        self._reported: set[str] = set()
        self._thread: Thread | None = None

    def put(self, prepared: PreparedClaim, devices: Sequence[PoolDevice]) -> None:
        """Write the status of a claim soon."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="gpuhook-status", daemon=True)
            self._thread.start()
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        name = prepared.claim.name
        try:
            self._waiting.put_nowait((name, device_entries(prepared, devices, now)))
        except queue.Full:
            self._report(name, "too many claims wait for the API server")

    def _run(self) -> None:
        while True:
            name, entries = self._waiting.get()
            try:
                self._write(name, entries)
            except GpuhookError as error:
                self._report(name, error.message)
            except Exception as error:  # an answer of another form, or a bug
                self._report(name, repr(error))

    def _write(self, name: ClaimName, entries: list[dict[str, Any]]) -> None:
        for tries_left in reversed(range(_TRIES)):
            try:
                document = self._api.get(name, _READ)
                changed = document and with_entries(document, name, entries)
                if changed:
                    self._api.replace_status(name, changed, _WRITE)
            except GpuhookError as error:
                if client.is_missing(error):
                    return  # the claim was deleted
                if not client.is_conflict(error) or not tries_left:
                    raise
            else:
                return

    def _report(self, name: ClaimName, reason: str) -> None:
        if reason not in self._reported:
            self._reported.add(reason)
            error = fault("GH2624", claim=name, reason=reason)
            logger().warning(error.message, code=error.code, hint=error.hint)


def with_entries(
    document: dict[str, Any], name: ClaimName, entries: Iterable[dict[str, Any]]
) -> dict[str, Any] | None:
    """Return a claim with these entries in the place of older ones for the same devices.

    None if nothing changes: it is another claim, or has lost the allocation of a device.
    """
    status = fastjson.fields(document, "status")
    results = fastjson.objects(status, "allocation", "devices", "results")
    allocated = {_key(one) for one in results}
    own = [one for one in entries if _key(one) in allocated]
    if fastjson.fields(document, "metadata").get("uid") != name.uid or not own:
        return None
    keys = {_key(one) for one in own}
    kept = [one for one in fastjson.objects(status, "devices") if _key(one) not in keys]
    return {**document, "status": {**status, "devices": [*kept, *own]}}


def _key(entry: dict[str, Any]) -> tuple[object, ...]:
    found = (entry.get(name) for name in ("driver", "pool", "device", "shareID"))
    return tuple(one if isinstance(one, str) else None for one in found)
