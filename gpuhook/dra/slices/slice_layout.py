# SPDX-License-Identifier: Apache-2.0
"""The division of a pool into slices, equal for equal hardware.

Counter sets are in separate slices, the first ones. Kubernetes 1.34 has them in the slice of
their devices.
"""

from __future__ import annotations

from gpuhook.dra.slices import slice_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuhook.dra.pool.pool_device import Pool, PoolDevice
    from gpuhook.dra.slices.server_features import ServerFeatures

MOST_DEVICES = 128
MOST_SPECIAL = 64  # devices of a slice in which one has taints or counters
MOST_SETS = 8
_MOST_COMBINED = 32  # counters of all sets of a slice in 1.34


def slice_specs(pool: Pool, features: ServerFeatures) -> list[dict[str, Any]]:
    """Return the specs of the slices of a pool, without generation and number of slices.

    A pool without devices has one empty slice: the driver runs.
    """
    if pool.counter_sets and not features.has_split_counters:
        parts = _combined(pool)
    else:
        sets = slice_document.counter_sets(pool.counter_sets)
        parts = [
            {"sharedCounters": sets[n : n + MOST_SETS]} for n in range(0, len(sets), MOST_SETS)
        ]
        parts += [_devices(chunk) for chunk in _chunks([one] for one in pool.devices)]
    head = {"driver": pool.driver, "nodeName": pool.name, "pool": {"name": pool.name}}
    return [{**head, **part} for part in parts or [{}]]


def _devices(devices: Iterable[PoolDevice]) -> dict[str, Any]:
    return {"devices": [slice_document.device_document(one) for one in devices]}


def _chunks(
    groups: Iterable[list[PoolDevice]], sizes: dict[str, int] | None = None
) -> list[list[PoolDevice]]:
    """Return the devices of each slice; a group remains together.

    `sizes` are the numbers of counters of the sets that a slice must have, too.
    """
    found: list[list[PoolDevice]] = []
    for group in groups:
        together = [*(found[-1] if found else ()), *group]
        sets = {name for one in together for name in one.counters} if sizes else set()
        is_special = any(one.taints or one.counters for one in together)
        fits = len(together) <= (MOST_SPECIAL if is_special else MOST_DEVICES)
        if sizes and sum(sizes[name] for name in sets) > _MOST_COMBINED:
            fits = False
        if found and fits:
            found[-1] = together
        else:
            found.append(group)
    return found


def _combined(pool: Pool) -> list[dict[str, Any]]:
    """Return slices that have devices and the counter sets that these consume.

    The devices of a set are in one slice: a set of the same name in another slice is another one.
    """
    groups: dict[str, list[PoolDevice]] = {}
    for one in pool.devices:
        groups.setdefault(min(one.counters, default=f"/{one.name}"), []).append(one)
    parts = []
    sizes = {name: len(own) for name, own in pool.counter_sets.items()}
    for chunk in _chunks(groups.values(), sizes):
        used = {name: pool.counter_sets[name] for one in chunk for name in one.counters}
        sets = slice_document.counter_sets(used)
        parts.append({**_devices(chunk), **({"sharedCounters": sets} if sets else {})})
    return parts
