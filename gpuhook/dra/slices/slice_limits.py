# SPDX-License-Identifier: Apache-2.0
"""The limits of the API for the devices of a pool, checked before they are sent.

The API server refuses a whole slice for one wrong device. Source: k8s.io/api/resource/v1.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuhook.dra.pool.pool_device import Version
from gpuhook.vendors.plugin.dra_device import LONGEST_LABEL, LONGEST_TEXT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.dra.pool.pool_device import Capacity, Pool, PoolDevice, Taint

MOST_FACTS = 32  # attributes and capacities of a device
MOST_COUNTERS = 32  # of a set, and of what a device consumes of one
MOST_CONSUMED_SETS = 2
MOST_TAINTS = 16
_LONGEST_DOMAIN, _LONGEST_ID = 63, 32
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?")
_VERSION = re.compile(r"(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*)){2}([-+][0-9A-Za-z.+-]+)?")
_EFFECTS = ("None", "NoSchedule", "NoExecute")


def within_limits(pool: Pool) -> tuple[Pool, dict[str, str]]:
    """Return (the pool without devices that the API server would refuse, their reasons)."""
    kept: dict[str, PoolDevice] = {}
    refused: dict[str, str] = {}
    for device in pool.devices:
        reason = next(_reasons(device, pool.counter_sets), "")
        if not reason and device.name in kept:
            reason = "another device has the same name"
        if reason:
            refused[device.name] = reason
        else:
            kept[device.name] = device
    used = {name for device in kept.values() for name in device.counters}
    sets = {name: own for name, own in pool.counter_sets.items() if name in used}
    return replace(pool, devices=tuple(kept.values()), counter_sets=sets), refused


def _reasons(device: PoolDevice, sets: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    if not _is_label(device.name):
        yield "its name is not a DNS label"
    count = len(device.attributes) + len(device.capacity)
    if count > MOST_FACTS:
        yield f"it has {count} attributes and capacities, more than {MOST_FACTS}"
    for name in (*device.attributes, *device.capacity):
        if not _is_qualified(name):
            yield f"{name} is not a name of an attribute or capacity"
    for name, value in device.attributes.items():
        if reason := _attribute_reason(value):
            yield f"its attribute {name} {reason}"
    for name, capacity in device.capacity.items():
        if reason := _capacity_reason(capacity, is_shared=device.is_shared):
            yield f"its capacity {name} {reason}"
    yield from _taint_reasons(device.taints)
    yield from _counter_reasons(device.counters, sets)


def _is_label(name: str) -> bool:
    return len(name) <= LONGEST_LABEL and _LABEL.fullmatch(name) is not None


def _is_qualified(name: str) -> bool:
    domain, slash, own = name.rpartition("/")
    fits = not slash or (
        len(domain) <= _LONGEST_DOMAIN and _SUBDOMAIN.fullmatch(domain) is not None
    )
    return fits and len(own) <= _LONGEST_ID and _ID.fullmatch(own) is not None


def _attribute_reason(value: str | int | bool | Version) -> str:
    if isinstance(value, int):
        return "" if -(2**63) <= value < 2**63 else "does not fit into 64 bits"
    text = value.text if isinstance(value, Version) else value
    if len(text.encode()) > LONGEST_TEXT:
        return f"is longer than {LONGEST_TEXT} bytes"
    if isinstance(value, Version) and not _VERSION.fullmatch(text):
        return f"is not a semantic version: {text}"
    return ""


def _capacity_reason(capacity: Capacity, *, is_shared: bool) -> str:
    if not 0 <= capacity.value < 2**63:
        return "does not fit into 63 bits"
    if not is_shared or not capacity.step:
        return ""
    most = capacity.most or capacity.value
    if not 0 <= capacity.least <= capacity.default <= most <= capacity.value:
        return "has a request policy that contradicts its value"
    if capacity.least + capacity.step > capacity.value:
        return "is less than the minimum of a request and one step"
    values = (capacity.default, capacity.most or capacity.default)
    if any((one - capacity.least) % capacity.step for one in values):
        return "has a default or maximum that is not the minimum and a multiple of the step"
    return ""


def _taint_reasons(taints: tuple[Taint, ...]) -> Iterator[str]:
    if len(taints) > MOST_TAINTS:
        yield f"it has {len(taints)} taints, more than {MOST_TAINTS}"
    for taint in taints:
        domain, slash, name = taint.key.rpartition("/")
        is_key = 0 < len(name) <= LONGEST_LABEL and _VALUE.fullmatch(name)
        if not is_key or (slash and not _SUBDOMAIN.fullmatch(domain)):
            yield f"{taint.key!r} is not a key of a taint"
        if len(taint.value) > LONGEST_LABEL or not _VALUE.fullmatch(taint.value):
            yield f"its taint {taint.key} has a value that no label can have: {taint.value!r}"
        if taint.effect not in _EFFECTS:
            yield f"its taint {taint.key} has the unknown effect {taint.effect!r}"


def _counter_reasons(
    consumed: Mapping[str, Mapping[str, int]], sets: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    if len(consumed) > MOST_CONSUMED_SETS:
        yield f"it consumes {len(consumed)} counter sets, more than {MOST_CONSUMED_SETS}"
    for name, counters in consumed.items():
        known = sets.get(name, {})
        if not 0 < len(counters) <= MOST_COUNTERS or len(known) > MOST_COUNTERS:
            yield f"its counter set {name} has no counter, or more than {MOST_COUNTERS}"
        if not all(map(_is_label, (name, *known, *counters))):
            yield f"its counter set {name} has a name that is not a DNS label"
        missing = [c for c, number in counters.items() if number > known.get(c, 0)]
        if missing:
            yield f"it consumes more of {missing[0]} than its counter set {name} has"
