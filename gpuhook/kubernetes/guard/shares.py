# SPDX-License-Identifier: Apache-2.0
"""Which containers the guard watches: those that may have a share of a device, and no driver holds.

Pure. The ledger says what a container was granted and whether the driver holds it to that. Of a
container that the ledger does not know, the kubelet says that a pod holds units, and the mount in
the container says which container it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.grant.memory import NO_LIMIT
from gpuhook.kubernetes.config.configuration import MPS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuhook.kubernetes.guard.homes import First
    from gpuhook.kubernetes.guard.recorded import Recorded
    from gpuhook.kubernetes.metrics.container_memory import Names
    from gpuhook.kubernetes.metrics.holders import Holdings
    from gpuhook.kubernetes.offer.devices import Resource

Key = tuple[str, str]  # the id of a container, the UUID of a device


@dataclass(frozen=True, slots=True)
class LimitedUnit:
    """A unit that is a share of a device: `hard` bytes of it."""

    device: str
    hard: int
    resource: str


@dataclass(frozen=True, slots=True)
class Share:
    """What one container may have of one device, in bytes.

    `is_certain` is false where only its being alone tells that it is the container that holds it.
    """

    container: str  # the id
    names: Names
    device: str
    hard: int
    resource: str = ""  # "" outside of Kubernetes
    is_certain: bool = True

    @property
    def key(self) -> Key:
        """Return what tells it from the others."""
        return self.container, self.device

    @property
    def label(self) -> str:
        """Return how the container is called, for people."""
        named = [word for word in self.names if word]
        return "/".join(named) if self.names[1] else self.container[:12]


@dataclass(frozen=True, slots=True)
class Held:
    """What a container of a pod holds of a device, of which the ledger knows nothing."""

    names: Names
    device: str
    hard: int
    resource: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What is known before anybody looks at the driver.

    `known` has the ids of the ledger's containers, `by_driver` what the driver holds; `devices`
    have to be looked at: none means that nobody holds what would have to be watched. `firsts` are
    the first processes of the ledger's containers, as far as they are known.
    """

    known: frozenset[str] = frozenset()
    by_driver: frozenset[Key] = frozenset()
    shares: Mapping[Key, Share] = field(default_factory=dict)
    unrecorded: tuple[Held, ...] = ()
    devices: frozenset[str] = frozenset()
    firsts: Mapping[str, First] = field(default_factory=dict)


def limited_units(resources: Iterable[Resource]) -> dict[str, LimitedUnit]:
    """Return the units that are shares of memory, by id. The daemon of MPS holds its own."""
    return {
        unit.id: LimitedUnit(unit.device.uuid, memory.hard, resource.name)
        for resource in resources
        if resource.sharing != MPS
        for unit in resource.units
        if (memory := resource.memory.get(unit.device.uuid)) is not None
        if memory.hard < NO_LIMIT
    }


def holding(
    recorded: Iterable[Recorded], holdings: Holdings, units: Mapping[str, LimitedUnit]
) -> Holding:
    """Return who holds what. Where the kubelet tells nothing, anybody may hold anything."""
    entries = tuple(recorded)
    held = _held(holdings, units)
    resources = {unit.device: unit.resource for unit in units.values()}
    shares: dict[Key, Share] = {}
    devices: set[str] = set()
    for entry in entries:
        own = {one.device: one for one in held if one.names == entry.names}
        found = _of_entry(entry, own, resources)
        shares.update((share.key, share) for share in found)
        if own or entry.lives or (entry.lives is None and (holdings.reason or not entry.in_pod)):
            devices.update(share.device for share in found)
    known_names = {entry.names for entry in entries}
    unrecorded = tuple(one for one in held if one.names not in known_names)
    devices.update(one.device for one in unrecorded)
    if holdings.reason:
        devices.update(resources)
    known = frozenset(entry.id for entry in entries)
    by_driver = frozenset(
        (entry.id, device)
        for entry in entries
        for device, hard in entry.limits.items()
        if hard is None
    )
    watched = {key: share for key, share in shares.items() if share.device in devices}
    firsts = {entry.id: entry.first for entry in entries if entry.first is not None}
    return Holding(known, by_driver, watched, unrecorded, frozenset(devices), firsts)


def _held(holdings: Holdings, units: Mapping[str, LimitedUnit]) -> list[Held]:
    """Return what the kubelet has given to each container of each device, its units added up."""
    sums: dict[tuple[Names, str, str], int] = {}
    for unit, holder in holdings.holders.items():
        limited = units.get(unit)
        if limited is not None:
            names = holder.namespace, holder.pod, holder.container
            key = names, limited.device, limited.resource
            sums[key] = sums.get(key, 0) + limited.hard
    return [Held(names, device, hard, name) for (names, device, name), hard in sums.items()]


def _of_entry(
    entry: Recorded, held: Mapping[str, Held], resources: Mapping[str, str]
) -> list[Share]:
    """Return the shares of a container of the ledger: what was recorded counts first."""
    found = [
        Share(entry.id, entry.names, device, hard, resources.get(device, ""))
        for device, hard in entry.limits.items()
        if hard is not None
    ]
    return found + [
        Share(entry.id, entry.names, one.device, one.hard, one.resource)
        for one in held.values()
        if one.device not in entry.limits and not entry.is_ambiguous
    ]


def unrecorded_shares(
    device: str,
    grants: Mapping[str, int | None],
    pods: Collection[str],
    unrecorded: Iterable[Held],
    resource: str = "",
) -> list[Share]:
    """Return the shares of a device of containers that the ledger does not know.

    `grants` are the containers that use it and the bytes that their mounts grant, None without
    such a mount; `pods` are those of pods. One without is taken for the only holder if there is
    but one of each, which is not certain: others may have been given the device otherwise.
    """
    holders = [one for one in unrecorded if one.device == device]
    found = []
    for container, hard in grants.items():
        if hard is None:
            continue
        fitting = holders if len(holders) == 1 else [one for one in holders if one.hard == hard]
        held = fitting[0] if len(fitting) == 1 else None
        names = held.names if held else ("", "", container)
        name = held.resource if held else resource
        found.append(Share(container, names, device, hard, name))
    nameless = [one for one, hard in grants.items() if hard is None and one in pods]
    taken = {share.names for share in found}
    left = [one for one in holders if one.names not in taken]
    if len(left) == 1 and len(nameless) == 1 and len(holders) - len(left) == len(found):
        (one,), (container,) = left, nameless
        found.append(Share(container, one.names, device, one.hard, one.resource, is_certain=False))
    return found
