# SPDX-License-Identifier: Apache-2.0
"""Reads a claim from the API server, and checks its allocation for one driver and pool.

The kubelet names a claim and sends no allocation. Source: types.go of resource.k8s.io/v1; the
versions v1beta2 and v1beta1 have the same status.
"""

from __future__ import annotations

import math
import numbers
from functools import partial
from typing import Any

from gpuhook.device_plugin.api_server.client import Purpose
from gpuhook.dra.api.resource_api import GROUP, ClaimApi
from gpuhook.dra.claims.claim import FROM_CLASS, AllocatedDevice, Claim, OpaqueConfig
from gpuhook.dra.pool.pool_device import MEMORY
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson
from gpuhook.host.quantity import quantity

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpuhook.device_plugin.api_server.client import ApiServer
    from gpuhook.dra.claims.claim import ClaimName

_READ = Purpose("get", "resourceclaims", "containers with claims", GROUP)
_ALLOCATION = "status.allocation"


class ClaimReader:
    """Reads claims of the pool `pool` of a driver."""

    def __init__(self, server: ApiServer, driver: str, pool: str) -> None:
        self._api = ClaimApi(server)
        self._driver = driver
        self._pool = pool

    def read(self, name: ClaimName) -> Claim:
        """Return the claim with the devices and parameters of this driver.

        Raises GH2600 to GH2603, and the faults of the API server.
        """
        document = self._api.get(name, _READ)
        if document is None:
            raise fault("GH2600", claim=name, uid=name.uid)
        _require_uid(name, document)
        devices = _field(name, document, "status", "allocation", "devices", kind=dict)
        if not devices:
            raise fault("GH2602", claim=name, driver=self._driver, pool=self._pool)
        path = f"{_ALLOCATION}.devices"
        results = _items(name, devices, "results", path)
        requests = _requests(document)
        own = [
            _device(name, one, f"{path}.results[{n}]", requests)
            for n, one in enumerate(results)
            if (one.get("driver"), one.get("pool")) == (self._driver, self._pool)
        ]
        if not own:
            raise fault("GH2602", claim=name, driver=self._driver, pool=self._pool)
        configs = (
            _config(name, one, f"{path}.config[{n}].opaque.parameters", requests)
            for n, one in enumerate(_items(name, devices, "config", path))
            if isinstance(one.get("opaque"), dict) and one["opaque"].get("driver") == self._driver
        )
        return Claim(name, tuple(own), tuple(configs))

    def exists(self, name: ClaimName) -> bool:
        """Return whether the claim still has devices of this driver; True if that is unknown."""
        try:
            self.read(name)
        except GpuhookError as error:
            return error.code not in {"GH2600", "GH2601", "GH2602"}
        return True


def _require_uid(name: ClaimName, document: Mapping[str, Any]) -> None:
    uid = _field(name, document, "metadata", "uid", kind=str)
    if uid != name.uid:
        raise fault("GH2601", claim=name, uid=uid, expected=name.uid)


def _requests(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the requests of the claim by name, "gpu" or "gpu/small", as far as they are known."""
    found: dict[str, Mapping[str, Any]] = {}
    for one in fastjson.objects(document, "spec", "devices", "requests"):
        exactly = one.get("exactly")
        found[str(one.get("name"))] = exactly if isinstance(exactly, dict) else one  # v1beta1
        for sub in fastjson.objects(one, "firstAvailable"):
            found[f"{one.get('name')}/{sub.get('name')}"] = sub
    return found


def _requests_memory(request: Mapping[str, Any], driver: str) -> bool:
    amounts = fastjson.fields(request, "capacity", "requests")
    return not {MEMORY, f"{driver}/{MEMORY}"}.isdisjoint(amounts)


def _device(
    name: ClaimName,
    result: Mapping[str, Any],
    path: str,
    requests: Mapping[str, Mapping[str, Any]],
) -> AllocatedDevice:
    text: Callable[[str], str] = partial(_text, name, result, path)
    request, _, subrequest = text("request").partition("/")
    admin = result.get("adminAccess")
    if admin not in (None, True, False) or not request or not text("device"):
        raise _unreadable(name, path)
    return AllocatedDevice(
        request=request,
        driver=text("driver"),
        pool=text("pool"),
        device=text("device"),
        share_id=text("shareID"),
        consumed=_consumed(name, result, f"{path}.consumedCapacity"),
        is_admin=admin is True,
        subrequest=subrequest,
        requests_memory=_requests_memory(requests.get(text("request"), {}), text("driver")),
    )


def _consumed(name: ClaimName, result: Mapping[str, Any], path: str) -> dict[str, int]:
    """Return the consumed capacities as whole numbers, without the driver's domain."""
    found = {}
    own = f"{result['driver']}/"
    consumed = result.get("consumedCapacity") or {}
    if not isinstance(consumed, dict):
        raise _unreadable(name, path)
    for capacity, amount in consumed.items():
        number: Any = quantity(amount) if isinstance(amount, str) else amount
        is_number = isinstance(number, numbers.Real) and not isinstance(number, bool)
        if not is_number or not 0 <= number < math.inf:
            raise _unreadable(name, f"{path}[{capacity}]")
        found[capacity.removeprefix(own)] = math.ceil(number)
    return found


def _config(
    name: ClaimName,
    entry: Mapping[str, Any],
    path: str,
    known: Mapping[str, Mapping[str, Any]],
) -> OpaqueConfig:
    parameters = entry["opaque"].get("parameters")
    requests = entry.get("requests") or []
    is_list = isinstance(requests, list) and all(isinstance(one, str) for one in requests)
    if not isinstance(parameters, dict) or not is_list:
        raise _unreadable(name, path)
    source = _text(name, entry, path, "source")
    classes = [known.get(one, {}).get("deviceClassName") for one in requests]
    named = ", ".join(dict.fromkeys(str(one) for one in classes if one))
    owner = f"DeviceClass {named}" if named and source == FROM_CLASS else ""
    return OpaqueConfig(source, parameters, tuple(dict.fromkeys(requests)), path, owner)


def _items(name: ClaimName, owner: Mapping[str, Any], key: str, path: str) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = _field(name, owner, key, kind=list)
    if not all(isinstance(one, dict) for one in items):
        raise _unreadable(name, f"{path}.{key}")
    return items


def _text(name: ClaimName, owner: Mapping[str, Any], path: str, key: str) -> str:
    value = owner.get(key)
    if value is not None and not isinstance(value, str):
        raise _unreadable(name, f"{path}.{key}")
    return value or ""


def _field(name: ClaimName, document: Mapping[str, Any], *keys: str, kind: type[Any]) -> Any:
    """Return a field, or the empty value of its kind."""
    found: Any = document
    for position, key in enumerate(keys, 1):
        found = found.get(key)
        if found is None:
            return kind()
        if not isinstance(found, kind if position == len(keys) else dict):
            raise _unreadable(name, ".".join(keys[:position]))
    return found


def _unreadable(name: ClaimName, path: str) -> GpuhookError:
    return fault("GH2603", claim=name, path=path)
