# SPDX-License-Identifier: Apache-2.0
"""The fields of a ResourceSlice, as resource.k8s.io/v1 and v1beta1 have them.

Quantities have the form in which the API server returns them, so that stored objects are equal.
"""

from __future__ import annotations

from gpuhook.dra.pool.pool_device import Capacity, PoolDevice, Taint, Version
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_BASIC = "v1beta1"  # its devices have their fields below `basic`
_SUFFIXES = tuple(("KMGTPE"[n - 1] + "i", 1024**n) for n in range(6, 0, -1))
_DECIMAL_SUFFIXES = tuple(("kMGTPE"[n - 1], 1000**n) for n in range(6, 0, -1))


def quantity(number: int) -> str:
    """Return a number as the shortest exact quantity.

    >>> quantity(20 << 30), quantity(9728 << 20), quantity(132), quantity(3000)
    ('20Gi', '9728Mi', '132', '3k')
    """
    for suffix, scale in (*_SUFFIXES, *_DECIMAL_SUFFIXES):
        if number and number % scale == 0:
            return f"{number // scale}{suffix}"
    return str(number)


def device_document(device: PoolDevice) -> dict[str, Any]:
    """Return a device of v1, without empty fields."""
    found: dict[str, Any] = {
        "name": device.name,
        "attributes": {
            name: _attribute(device.attributes[name]) for name in sorted(device.attributes)
        },
        "capacity": {
            name: _capacity(device.capacity[name], is_shared=device.is_shared)
            for name in sorted(device.capacity)
        },
        "consumesCounters": [
            {"counterSet": one["name"], "counters": one["counters"]}
            for one in counter_sets(device.counters)
        ],
        "taints": [_taint(taint) for taint in device.taints],
    }
    if device.is_shared:
        found["allowMultipleAllocations"] = True
    return {name: value for name, value in found.items() if value}


def counter_sets(sets: Mapping[str, Mapping[str, int]]) -> list[dict[str, Any]]:
    """Return counter sets in the order of their names."""
    return [
        {"name": name, "counters": {c: {"value": quantity(own[c])} for c in sorted(own)}}
        for name, own in sorted(sets.items())
    ]


def _attribute(value: str | int | bool | Version) -> dict[str, str | int | bool]:
    if isinstance(value, Version):
        return {"version": value.text}
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _capacity(capacity: Capacity, *, is_shared: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"value": quantity(capacity.value)}
    if is_shared and capacity.step:
        limits = {"min": quantity(capacity.least), "step": quantity(capacity.step)}
        if capacity.most:
            limits["max"] = quantity(capacity.most)
        found["requestPolicy"] = {"default": quantity(capacity.default), "validRange": limits}
    return found


def _taint(taint: Taint) -> dict[str, str]:
    found = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    found["timeAdded"] = taint.time_added
    return {name: value for name, value in found.items() if value}


def wire_spec(spec: Mapping[str, Any], version: str) -> dict[str, Any]:
    """Return a spec of v1 as one of `version`."""
    if version != _BASIC or "devices" not in spec:
        return dict(spec)
    devices = [
        {
            "name": device["name"],
            "basic": {name: value for name, value in device.items() if name != "name"},
        }
        for device in spec["devices"]
    ]
    return {**spec, "devices": devices}


def stored_spec(spec: dict[str, Any], version: str) -> dict[str, Any]:
    """Return a spec of the API server in `version` as one of v1."""
    if version != _BASIC or not isinstance(spec.get("devices"), list):
        return dict(spec)
    devices = fastjson.objects(spec, "devices")
    stored = [{"name": one.get("name"), **fastjson.fields(one, "basic")} for one in devices]
    return {**spec, "devices": stored}
