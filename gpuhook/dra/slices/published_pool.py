# SPDX-License-Identifier: Apache-2.0
"""The pool of a driver as the API server has it, as an object for JSON."""

from __future__ import annotations

from gpuhook.dra.slices import slice_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.dra.pool.pool_device import PoolDevice
    from gpuhook.dra.slices.slice_publisher import SlicePublisher


def document(publisher: SlicePublisher) -> dict[str, Any]:
    """Return the pool, its slices, and the server's features, null as long as unknown.

    `trouble` is why the slices are not up to date.
    """
    pool, features = publisher.pool, publisher.features
    is_current = publisher.published.is_set()
    slices = [] if pool is None or features is None else slice_layout.slice_specs(pool, features)
    return {
        "server": None
        if features is None
        else {
            "version": features.version,
            "minor": features.minor,
            "gates": sorted(features.gates),
        },
        "pool": None
        if pool is None
        else {
            "name": pool.name,
            "reason": pool.reason,
            "devices": [_device(one) for one in pool.devices],
        },
        "slices": [
            {
                "devices": len(one.get("devices", ())),
                "counter_sets": len(one.get("sharedCounters", ())),
            }
            for one in slices
        ],
        "published": is_current,
        "trouble": publisher.trouble,
    }


def _device(one: PoolDevice) -> dict[str, Any]:
    return {
        "name": one.name,
        "uuid": one.device.uuid,
        "shared": one.is_shared,
        "taints": [
            {
                "key": taint.key,
                "value": taint.value,
                "effect": taint.effect,
                "since": taint.time_added,
            }
            for taint in one.taints
        ],
    }
