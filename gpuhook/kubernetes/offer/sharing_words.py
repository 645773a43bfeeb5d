# SPDX-License-Identifier: Apache-2.0
"""What those who share a device have to know of it, in a few sentences for each resource. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.kubernetes.offer import memory_bounds
from gpuhook.vendors.nvidia import isolation
from gpuhook.vendors.nvidia.isolation import BY_NOBODY, Isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.kubernetes.offer.devices import Device, Resource


@dataclass(frozen=True, slots=True)
class Told:
    """What holds for all devices of a resource, or for some of them where they differ."""

    resource: str
    strategy: str
    isolation: Isolation
    devices: tuple[str, ...] = ()  # their indices; (): all

    def fields(self) -> dict[str, object]:
        """Return what a line of the log says."""
        some: dict[str, object] = {"devices": list(self.devices)} if self.devices else {}
        named = {"resource": self.resource, "strategy": self.strategy}
        return {**named, **some, **dict(self.isolation.sentences())}


def of(resources: tuple[Resource, ...], bounds: Mapping[str, str]) -> tuple[Told, ...]:
    """Return what to tell of each resource; `bounds` has who bounds memory, by device UUID."""
    found: list[Told] = []
    for resource in resources:
        groups: dict[Isolation, list[str]] = {}
        for device in resource.devices:
            groups.setdefault(_isolation(resource, device, bounds), []).append(device.index)
        for answers, indices in groups.items():
            some = tuple(indices) if len(groups) > 1 else ()
            found.append(Told(resource.name, resource.sharing, answers, some))
    return tuple(found)


def _isolation(resource: Resource, device: Device, bounds: Mapping[str, str]) -> Isolation:
    return isolation.of(
        resource.sharing,
        is_mig=device.instance is not None,
        memory_by=bounds.get(device.uuid, BY_NOBODY),
        is_oversubscribed=memory_bounds.is_oversubscribed(resource, device),
    )
