# SPDX-License-Identifier: Apache-2.0
"""The pool of a driver as the API server has it, as an object for JSON."""

from __future__ import annotations

from gpuhook.dra.slices import slice_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.dra.pool.pool_device import Pool, PoolDevice
    from gpuhook.dra.slices.server_features import ServerFeatures
    from gpuhook.dra.slices.slice_publisher import SlicePublisher


def document(publisher: SlicePublisher) -> dict[str, Any]:
    """Return the pool, its slices, and the server's features, null as long as unknown.

    `trouble` is why the slices are not up to date.
    """
    pool, features = publisher.pool, publisher.features
    slices = [] if pool is None or features is None else slice_layout.slice_specs(pool, features)
    return {
        "server": None if features is None else _server(features),
        "pool": None if pool is None else _pool(pool),
        "slices": [
            {
                "devices": len(one.get("devices", ())),
                "counter_sets": len(one.get("sharedCounters", ())),
            }
            for one in slices
        ],
        "published": publisher.published.is_set(),
        "trouble": publisher.trouble,
    }


def _server(features: ServerFeatures) -> dict[str, Any]:
    gates = sorted(features.gates)
    return {"version": features.version, "minor": features.minor, "gates": gates}


def _pool(pool: Pool) -> dict[str, Any]:
    devices = [_device(one) for one in pool.devices]
    return {"name": pool.name, "reason": pool.reason, "devices": devices}


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
