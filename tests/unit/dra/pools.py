# SPDX-License-Identifier: Apache-2.0
"""Pools of simulated nodes, for the tests of DRA."""

from __future__ import annotations

from typing import Any

from gpuhook.device_plugin.config.configuration import Configuration
from gpuhook.device_plugin.config.grammar.memory_values import FAIR
from gpuhook.device_plugin.config.sharing_section import SharedResource
from gpuhook.dra.pool.node_pool import node_pool
from gpuhook.dra.pool.pool_device import MEMORY, SLOTS, Capacity, Pool, PoolDevice
from gpuhook.dra.pool.sharing_form import sharing_forms
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.plugin.vendor_device import Device
from tests.unit.offering import GPU, configured

NODE = "node1"
GIB = 1 << 30


def profile_pool(
    profile: str, configuration: Configuration | None = None, *, vendor: str = "nvidia"
) -> Pool:
    """Return the pool of a profile, as a configuration shares its devices."""
    chosen = configuration or Configuration()
    own = next(one for one in vendors() if one.name == vendor)
    part = own.dumped_part(profile)
    assert part is not None
    return node_pool(part, sharing_forms(chosen, part.inventory), NODE)


def shared_pool(profile: str, replicas: int = 4, **entry: Any) -> Pool:
    """Return a pool whose GPUs are shared by replicas, with fair memory."""
    one = SharedResource(GPU, replicas=replicas, **{"memory": FAIR, **entry})
    return profile_pool(profile, configured(one))


def device(number: int = 0, **fields: Any) -> PoolDevice:
    """Return a device of a made-up GPU."""
    uuid = f"GPU-{number}"
    own = Device(uuid, str(number), uuid, number, (), (), memory_bytes=80 * GIB)
    facts: dict[str, Any] = {"attributes": {"type": "gpu", "uuid": uuid}, **fields}
    return PoolDevice(f"gpu-{number}", own, **facts)


def shared_device(number: int = 0, slots: int = 4, **fields: Any) -> PoolDevice:
    memory = Capacity(80 * GIB, 80 * GIB // slots, GIB, GIB)
    capacity = {SLOTS: Capacity(slots, 1, 1, 1), MEMORY: memory}
    return device(number, capacity=capacity, is_shared=True, **fields)


def pool_of(*devices: PoolDevice, **fields: Any) -> Pool:
    return Pool("gpu.nvidia.com", NODE, devices, **fields)
