# SPDX-License-Identifier: Apache-2.0
"""The memory units of one container, which are all of one device.

Policy packed selects the device with the least free memory that has enough, which leaves the
largest parts to others; spread selects the device with the most. Of equal devices the first one is
selected. If some units are required, only their device is possible.
"""

from __future__ import annotations

from itertools import islice

from gpuhook.device_plugin.config.sharing_section import SPREAD
from gpuhook.errors import fault
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from collections.abc import Set as AbstractSet

    from gpuhook.device_plugin.offer.offered_devices import Resource


def choose(
    resource: Resource,
    available: AbstractSet[str],
    required: Collection[str],
    size: int,
    *,
    policy: str,
    unhealthy: Collection[str] = (),
) -> list[str]:
    """Return the ids of `size` units of one device, the required ones among them, in order.

    `required` are available and of the resource. Raises GH1859 if they are of several devices,
    GH1849 if no device has enough.
    """
    devices = unit_devices(resource, required)
    if len(devices) > 1:
        raise split(resource, len(required), devices)
    free = {
        uuid: sum(map(available.__contains__, ids))
        for uuid, ids in resource.index.ids.items()
        if (uuid in devices if devices else uuid not in unhealthy)
    }
    fitting = [uuid for uuid, count in free.items() if count >= size]
    if not fitting:
        raise _too_many(resource, size, max(free.values(), default=0))
    best = (max if policy == SPREAD else min)(fitting, key=free.__getitem__)
    ids = resource.index.ids[best]
    others = islice(
        (name for name in ids if name in available and name not in required), size - len(required)
    )
    if not required:
        return list(others)
    chosen = {*required, *others}
    return [name for name in ids if name in chosen]


def unit_devices(resource: Resource, ids: Iterable[str]) -> list[str]:
    """Return the UUIDs of the devices of units; the resource has all of them."""
    places = map(resource.index.positions.__getitem__, ids)
    return list(dict.fromkeys(resource.units[place].device.uuid for place in places))


def split(resource: Resource, count: int, uuids: Collection[str]) -> Exception:
    """Return the fault of a container whose units are of several devices."""
    devices = " and ".join(sorted(uuids))
    return fault("GH1859", count=count, resource=resource.name, devices=devices)


def _too_many(resource: Resource, size: int, most: int) -> Exception:
    unit = next((limit.hard for limit in resource.memory.values()), 0)
    memory = f"{size * unit // MIB} MiB"
    return fault("GH1849", resource=resource.name, size=size, memory=memory, most=most)
