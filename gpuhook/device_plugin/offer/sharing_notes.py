# SPDX-License-Identifier: Apache-2.0
"""The isolation of containers that share a device, and what enforces their memory limits. Pure.

The driver enforces limits if it has the call and the node's runtime makes it; the ledger records
the call for each container.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS, NOT_SHARED
from gpuhook.request.memory_request import amount
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.hot.memory_vendors import vendor_of
from gpuhook.vendors.usage.device_isolation import (
    BY_GUARD,
    BY_HARDWARE,
    BY_MPS,
    BY_NOBODY,
    Isolation,
    SharedUse,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.offer.offered_devices import Device, Resource

_MIG = "the driver limits the memory of whole GPUs, not of MIG instances"
_GUARD = "enable the plugin's guard: gpuhook.guard.action terminate or kill"
_PROFILE = "divide the GPU into instances of the required size"
_PARTITION_LIMIT = "the kernel limits the memory of whole GPUs, not of partitions"
_FINER = "use partition modes with partitions of the required size"


@dataclass(frozen=True, slots=True)
class SharingNote:
    """The isolation on all devices of a resource, or on some of them if they differ.

    `hint` is the remedy for a limit that is not enforced, else "".
    """

    resource: str
    strategy: str
    isolation: Isolation
    devices: tuple[str, ...] = ()  # their indices; (): all
    hint: str = ""

    def fields(self) -> dict[str, object]:
        some: dict[str, object] = {"devices": list(self.devices)} if self.devices else {}
        named = {"resource": self.resource, "strategy": self.strategy}
        hint = {"hint": self.hint} if self.hint else {}
        return {**named, **some, **dict(self.isolation.sentences()), **hint}


def limit_enforcer(resource: Resource, device: Device, *, driver: bool, guard: bool) -> str:
    """Return what enforces the memory limit of a unit of `device`: BY_GUARD and so on.

    `driver`: this node's driver enforces limits. `guard`: otherwise the plugin terminates processes
    above a limit; a guard that only reports enforces nothing. MIG instances have no limits of the
    driver (nvml.h).
    """
    if device.uuid not in resource.memory:
        alone = device.instance is not None and resource.sharing == NOT_SHARED
        return BY_HARDWARE if alone else BY_NOBODY
    return enforcer_of(device, resource.sharing, driver=driver, guard=guard)


def enforcer_of(device: Device, strategy: str, *, driver: bool, guard: bool) -> str:
    """Return what enforces a memory limit of a device that a strategy shares."""
    if strategy == MPS:
        return BY_MPS
    if driver and device.instance is None and device.profile is None:
        return vendor_of(device.uuid).limited_by
    return BY_GUARD if guard else BY_NOBODY


def sharing_notes(
    resources: tuple[Resource, ...],
    unenforced: Mapping[str, tuple[str, str]] | None = None,
    *,
    guard: bool = False,
) -> tuple[SharingNote, ...]:
    """Return the notes on each resource.

    `unenforced` is the reason why a vendor's driver enforces no limits on this node, and the
    remedy, by the vendor's domain; empty if it does. `guard`: the plugin terminates processes above
    a limit.
    """
    found: list[SharingNote] = []
    for resource in resources:
        groups: dict[tuple[Isolation, str], list[str]] = {}
        reasons = (unenforced or {}).get(resource.domain, ("", ""))
        for device in resource.devices:
            by = limit_enforcer(resource, device, driver=not reasons[0], guard=guard)
            key = _isolation(resource, device, by, reasons)
            groups.setdefault(key, []).append(device.index)
        for (isolation, hint), indices in groups.items():
            some = tuple(indices) if len(groups) > 1 else ()
            found.append(SharingNote(resource.name, resource.sharing, isolation, some, hint))
    return tuple(found)


def _isolation(
    resource: Resource, device: Device, by: str, unenforced: tuple[str, str]
) -> tuple[Isolation, str]:
    """Return the isolation, and the hint for a limit that is not enforced."""
    memory = resource.memory.get(device.uuid)
    is_mig = device.instance is not None
    is_partition = device.profile is not None and not is_mig
    reason, remedy = (_MIG, _PROFILE) if is_mig else unenforced
    if is_partition and not reason:
        reason, remedy = _PARTITION_LIMIT, _FINER
    use = SharedUse(
        resource.sharing,
        by,
        is_part=is_mig or is_partition,
        profile=device.profile or "",
        is_oversubscribed=memory is not None and memory.soft < memory.hard,
        limit=amount(memory.hard) + _EACH.get(resource.sharing, _REPLICA) if memory else "",
        unenforced=reason,
    )
    isolation = vendor_of_resource(device.domain).isolation(use)
    if memory is None or by != BY_NOBODY:
        return isolation, ""
    return isolation, "; or ".join(filter(None, (remedy, _GUARD)))


_REPLICA = " a replica"
_EACH = {NOT_SHARED: "", MEMORY_UNITS: " a unit"}
