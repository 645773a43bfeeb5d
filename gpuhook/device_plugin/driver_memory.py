# SPDX-License-Identifier: Apache-2.0
"""The free memory of a device, as its driver reports it."""

from __future__ import annotations

from functools import partial

from gpuhook.device_plugin import driver_calls
from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.node_snapshot import NodeSnapshot


def free_memory(snapshot: NodeSnapshot, uuid: str, host_root: str) -> int | None:
    """Return the free bytes of a device of any vendor, None if unknown."""
    for part in () if snapshot.is_dump else snapshot.parts:
        vendor = vendor_of_resource(part.domain)
        read = partial(vendor.free_memory, part, uuid, host_root)
        try:
            free = driver_calls.call_driver(vendor, "memory", read)
        except GpuhookError:  # the driver does not answer; health reports it
            continue
        if free is not None:
            return free
    return None
