# SPDX-License-Identifier: Apache-2.0
"""The check before a container starts: its devices are healthy and have memory left.

The kubelet asks Allocate once for the life of a container, and this before each of its starts.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.kubernetes.allocate import chosen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuhook.kubernetes.devices import Resource

_MEBIBYTE = 1 << 20


def check(
    resource: Resource,
    ids: Sequence[str],
    unhealthy: Mapping[str, str],
    min_free_memory: int = 0,
    free_memory: Callable[[str], int | None] | None = None,
) -> None:
    """Return if a container may start on the units `ids`; else GH1857 or GH1858 say why not.

    `unhealthy` has reasons by unit id or device UUID. `free_memory` returns the bytes that the
    device of a UUID has free, None where the driver cannot tell: that refuses nothing. It may
    block. An id that is no longer there raises GH1850.
    """
    units = chosen(resource, ids)
    for unit in units:
        reason = unhealthy.get(unit.id) or unhealthy.get(unit.device.uuid)
        if reason:
            raise fault("GH1857", id=unit.id, reason=reason)
    if min_free_memory <= 0 or free_memory is None:
        return
    for uuid in dict.fromkeys(unit.device.uuid for unit in units):
        free = free_memory(uuid)
        if free is not None and free < min_free_memory:
            needed = min_free_memory // _MEBIBYTE
            raise fault("GH1858", uuid=uuid, free=free // _MEBIBYTE, needed=needed)
