# SPDX-License-Identifier: Apache-2.0
"""Notes on the isolation of containers that share a device, for each resource. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, NOT_SHARED
from gpuhook.device_plugin.offer import memory_bounds
from gpuhook.request.memory_request import amount
from gpuhook.vendors.nvidia.gpu import sharing_isolation
from gpuhook.vendors.nvidia.gpu.sharing_isolation import BY_NOBODY, Isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.offer.offered_devices import Device, Resource

_MIG = "the driver limits the memory of whole GPUs, not of MIG instances"
_GUARD = "enable the plugin's guard: gpuhook.guard.action terminate or kill"
_PROFILE = "divide the GPU into instances of the required size"


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
        """Return the fields of a log line."""
        some: dict[str, object] = {"devices": list(self.devices)} if self.devices else {}
        named = {"resource": self.resource, "strategy": self.strategy}
        hint = {"hint": self.hint} if self.hint else {}
        return {**named, **some, **dict(self.isolation.sentences()), **hint}


def sharing_notes(
    resources: tuple[Resource, ...], bounds: Mapping[str, str], unheld: tuple[str, str] = ("", "")
) -> tuple[SharingNote, ...]:
    """Return the notes on each resource; `bounds` has what enforces limits, by device UUID.

    `unheld` is the reason why this node's driver enforces no limits, and the remedy.
    """
    found: list[SharingNote] = []
    for resource in resources:
        groups: dict[tuple[Isolation, str], list[str]] = {}
        for device in resource.devices:
            key = _isolation(resource, device, bounds.get(device.uuid, BY_NOBODY), unheld)
            groups.setdefault(key, []).append(device.index)
        for (isolation, hint), indices in groups.items():
            some = tuple(indices) if len(groups) > 1 else ()
            found.append(SharingNote(resource.name, resource.sharing, isolation, some, hint))
    return tuple(found)


def _isolation(
    resource: Resource, device: Device, by: str, unheld: tuple[str, str]
) -> tuple[Isolation, str]:
    """Return the isolation, and the hint for a limit that is not enforced."""
    memory = resource.memory.get(device.uuid)
    is_mig = device.instance is not None
    reason, remedy = (_MIG, _PROFILE) if is_mig else unheld
    isolation = sharing_isolation.isolation_of(
        resource.sharing,
        is_mig=is_mig,
        memory_by=by,
        is_oversubscribed=memory_bounds.is_oversubscribed(resource, device),
        limit=amount(memory.hard) + _EACH.get(resource.sharing, _REPLICA) if memory else "",
        unheld=reason,
    )
    if memory is None or by != BY_NOBODY:
        return isolation, ""
    return isolation, "; or ".join(filter(None, (remedy, _GUARD)))


_REPLICA = " a replica"
_EACH = {NOT_SHARED: "", MEMORY_UNITS: " a unit"}
