# SPDX-License-Identifier: Apache-2.0
"""The preferred units for a container: GetPreferredAllocation, without gRPC.

Whole GPUs are selected by their links (prefer_linked.py), partitions by the use and the links of
their GPUs (prefer_partitions.py), replicas and MIG instances by the use of their devices
(prefer_shared.py), and memory units are all of one device (memory_units.py). The answer does not
depend on the order of the ids.
"""

from __future__ import annotations

from collections import Counter

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS
from gpuhook.device_plugin.offer import (
    memory_units,
    prefer_linked,
    prefer_partitions,
    prefer_shared,
)
from gpuhook.device_plugin.offer.prefer_linked import LinkedDevices
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuhook.device_plugin.offer.offered_devices import Resource
    from gpuhook.vendors.plugin.vendor_part import LinkScores


def preferred(
    resource: Resource,
    available: Sequence[str],
    must_include: Sequence[str],
    size: int,
    *,
    policy: str,
    topology: LinkScores,
    unhealthy: Collection[str] = (),
) -> list[str]:
    """Return the ids of the `size` preferred units, in the order of the resource.

    They include `must_include`, which are available. Units of the devices `unhealthy` (by UUID) are
    used only if there are not enough others. Unknown ids in `available` are ignored: a hint must
    not fail a pod. Raises GH1843 to GH1846. For memory units, which are of one healthy device, it
    raises GH1849 instead of GH1846, and GH1859.
    """
    _check(resource, available, must_include, size)
    known, required, named = resource.index.positions, set(must_include), set(available)
    if resource.sharing == MEMORY_UNITS:
        named |= required
        return memory_units.choose(
            resource, named, required, size, policy=policy, unhealthy=unhealthy
        )
    free = required.union(known.keys() & named)
    if size > len(free):
        count = len(required | named)
        raise fault("GH1846", resource=resource.name, size=size, known=len(free), named=count)
    bad = {name for uuid in unhealthy for name in resource.index.ids.get(uuid, ())}
    healthy = required | (free - bad)
    candidates = healthy if len(healthy) >= size else free
    if uses_links(resource):
        offer = LinkedDevices(resource.devices, candidates, required, size, topology)
        choice = prefer_partitions if is_partitioned(resource) else prefer_linked
        chosen = choice.choose(offer)
    else:
        chosen = prefer_shared.choose(
            resource, candidates, required, size, policy=policy, unhealthy=unhealthy
        )
    return [name for name in known if name in chosen]


def prepare(resource: Resource, topology: LinkScores) -> None:
    """Compute the tables of the links before the first request, if the resource uses them."""
    if uses_links(resource) and not is_partitioned(resource):
        prefer_linked.prepare(resource.devices, topology)


def uses_links(resource: Resource) -> bool:
    """Return whether the units are whole GPUs or partitions, which are selected by their links."""
    return not resource.is_mig and all(unit.replica is None for unit in resource.units)


def is_partitioned(resource: Resource) -> bool:
    """Return whether the devices are partitions of GPUs."""
    return any(device.profile is not None for device in resource.devices)


def _check(
    resource: Resource, available: Sequence[str], must_include: Sequence[str], size: int
) -> None:
    """Raise GH1843 or GH1844 for a request that contradicts itself or the resource."""
    for where, names in (("available", available), ("must_include", must_include)):
        if len(set(names)) < len(names):
            twice = next(name for name, count in Counter(names).items() if count > 1)
            raise fault("GH1844", resource=resource.name, reason=f"{twice} is twice in {where}")
    unknown = next((name for name in must_include if name not in resource.index.positions), None)
    if unknown is not None:
        raise fault("GH1843", resource=resource.name, name=unknown)
    if size < len(must_include):
        reason = f"an allocation of {size} must include {len(must_include)}"
        raise fault("GH1844", resource=resource.name, reason=reason)
