# SPDX-License-Identifier: Apache-2.0
"""The form of a pool that an API server can store.

A server without shared devices gets one device for each slot of a GPU. Without counters, devices
that overlap are left out: each of them would look free. Without taints, devices are left out that
must not be used.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.dra.pool.pool_device import MEMORY, SLOTS, Capacity
from gpuhook.dra.slices.server_features import COUNTERS, SHARES, TAINTS
from gpuhook.host.hot import fastjson
from gpuhook.vendors.plugin.dra_device import LONGEST_LABEL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from gpuhook.dra.pool.pool_device import Pool, PoolDevice, Taint
    from gpuhook.dra.slices.server_features import ServerFeatures

_INFORMATION = "None"  # an effect


def server_form(pool: Pool, features: ServerFeatures) -> Pool:
    """Return the pool without what the server does not keep."""
    devices: list[PoolDevice] = []
    for device in pool.devices:
        taints = tuple(t for t in device.taints if _is_kept(t, features))
        if TAINTS not in features.gates and any(t.effect != _INFORMATION for t in device.taints):
            continue
        kept = replace(device, taints=taints)
        is_replicated = device.is_shared and SHARES not in features.gates
        devices += _replicas(kept) if is_replicated else [kept]
    if COUNTERS in features.gates:
        return replace(pool, devices=tuple(devices))
    apart = _without_overlap(devices, pool.counter_sets)
    return replace(pool, devices=tuple(replace(one, counters={}) for one in apart), counter_sets={})


def _is_kept(taint: Taint, features: ServerFeatures) -> bool:
    if taint.effect == _INFORMATION:
        return features.has_information_taints
    return TAINTS in features.gates


def _replicas(device: PoolDevice) -> list[PoolDevice]:
    """Return a device for each slot of a shared one, with the memory of a claim without request.

    There are as many as the memory has room for.
    """
    count = device.capacity[SLOTS].value if SLOTS in device.capacity else 1
    memory = device.capacity.get(MEMORY)
    if memory is not None and memory.default:
        count = min(count, memory.value // memory.default)
    each = {} if memory is None else {MEMORY: Capacity(memory.default or memory.value)}
    parent = {"parentUUID": device.device.gpu, **device.attributes}
    return [
        replace(
            device,
            name=_replica_name(device.name, f"-s{number}"),
            attributes={**parent, "replica": number, "replicas": count},
            capacity=each,
            is_shared=False,
            replica=number,
            replicas=count,
        )
        for number in range(count)
    ]


def _replica_name(name: str, suffix: str) -> str:
    return name[: LONGEST_LABEL - len(suffix)] + suffix


def _without_overlap(
    devices: Iterable[PoolDevice], sets: Mapping[str, Mapping[str, int]]
) -> Iterator[PoolDevice]:
    """Yield the first devices that the counters have room for, together."""
    left = {name: dict(own) for name, own in sets.items()}
    for device in devices:
        needed = [
            (left.get(s, {}), c, n) for s, own in device.counters.items() for c, n in own.items()
        ]
        if all(own.get(counter, 0) >= number for own, counter, number in needed):
            for own, counter, number in needed:
                own[counter] = own.get(counter, 0) - number
            yield device


def _taint_key(device: object, taint: Mapping[str, Any]) -> tuple[str, ...]:
    parts = (device, taint.get("key"), taint.get("value", ""), taint.get("effect"))
    return tuple(map(str, parts))


def with_times(pool: Pool, stored: Iterable[Mapping[str, Any]], now: str) -> Pool:
    """Return the pool with a time for each taint: the stored one of an equal taint, else `now`."""
    times = {
        _taint_key(device.get("name"), taint): added
        for spec in stored
        for device in fastjson.objects(spec, "devices")
        for taint in fastjson.objects(device, "taints")
        if isinstance(added := taint.get("timeAdded"), str)
    }

    def timed(name: str, taint: Taint) -> Taint:
        if taint.time_added:
            return taint
        added = times.get((name, taint.key, taint.value, taint.effect), now)
        return replace(taint, time_added=added)

    return replace(
        pool,
        devices=tuple(
            replace(one, taints=tuple(timed(one.name, taint) for taint in one.taints))
            if one.taints
            else one
            for one in pool.devices
        ),
    )
