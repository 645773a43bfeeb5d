# SPDX-License-Identifier: Apache-2.0
"""The check before a container starts: its devices are healthy and have free memory.

The kubelet calls Allocate once in the life of a container, and this check before each start. An id
may therefore be of a configuration with other replicas: only its device is checked.
"""

from __future__ import annotations

from gpuhook.device_plugin.allocate.allocate import units_of
from gpuhook.errors import fault
from gpuhook.request.memory_request import MIB
from gpuhook.request.replicas import device_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuhook.device_plugin.offer.offered_devices import Resource


def check(
    resource: Resource,
    ids: Sequence[str],
    unhealthy: Mapping[str, str],
    min_free_memory: int = 0,
    free_memory: Callable[[str], int | None] | None = None,
) -> None:
    """Return if a container can start on the units `ids`, else raise GH1851 or GH1858.

    `unhealthy` has reasons by unit id or device UUID. `free_memory` returns the free bytes of the
    device with a UUID, None if they are unknown, which refuses nothing. It may block. An id of a
    missing device raises GH1850.
    """
    uuids = _devices(resource, ids)
    for name, uuid in uuids.items():
        reason = unhealthy.get(name) or unhealthy.get(uuid)
        if reason:
            raise fault("GH1851", id=name, resource=resource.name, reason=reason)
    if min_free_memory <= 0 or free_memory is None:
        return
    for uuid in dict.fromkeys(uuids.values()):
        free = free_memory(uuid)
        if free is not None and free < min_free_memory:
            needed = min_free_memory // MIB
            raise fault("GH1858", uuid=uuid, free=free // MIB, needed=needed)


def _devices(resource: Resource, ids: Sequence[str]) -> dict[str, str]:
    """Return the device UUID of each id; raises GH1850 for an unknown device."""
    known = {device.uuid for device in resource.devices}
    uuids = {name: device_of(name) or name for name in ids}
    units_of(resource, [name for name, uuid in uuids.items() if uuid not in known])
    return uuids
