# SPDX-License-Identifier: Apache-2.0
"""Which containers the guard watches: those that may have a share of a device, and no driver holds.

Pure. The ledger says what a container was granted and whether the driver holds it to that. Where it
says nothing, the kubelet says that a pod holds units, and the mount in the container says which
container it is, and how much it was granted: what its units are worth now is nothing to one that
was started when they were worth more, or had no limit.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuhook.device_plugin.guard.ledger_limits import Recorded
    from gpuhook.device_plugin.guard.process_scope import First
    from gpuhook.device_plugin.metrics.container_memory import Names
    from gpuhook.device_plugin.metrics.unit_holders import Holdings
    from gpuhook.device_plugin.offer.offered_devices import Resource

Key = tuple[str, str]  # the id of a container, the UUID of a device


@dataclass(frozen=True, slots=True)
class LimitedUnit:
    """A unit that is a share of a device: `hard` bytes of it."""

    device: str
    hard: int
    resource: str


@dataclass(frozen=True, slots=True)
class GuardShare:
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
class GuardedShare:
    """What a container of a pod holds of a device, of which the ledger knows nothing."""

    names: Names
    device: str
    hard: int
    resource: str


@dataclass(frozen=True, slots=True)
class Holding:
    """What is known before anybody looks at the driver.

    `known` has the ids of the ledger's containers, `by_driver` what the driver holds, `unsaid` the
    ledger's containers that hold units without a record of a limit: their mounts say whether they
    have one. `devices` have to be looked at: none means that nobody holds what would have to be
    watched. `firsts` are the first processes of the ledger's containers, as far as they are known.
    """

    known: frozenset[str] = frozenset()
    by_driver: frozenset[Key] = frozenset()
    shares: Mapping[Key, GuardShare] = field(default_factory=dict)
    unsaid: Mapping[Key, GuardedShare] = field(default_factory=dict)
    unrecorded: tuple[GuardedShare, ...] = ()
    devices: frozenset[str] = frozenset()
    firsts: Mapping[str, First] = field(default_factory=dict)


def limited_units(resources: Iterable[Resource]) -> dict[str, LimitedUnit]:
    """Return the units that are shares of memory, by id. The daemon of MPS holds its own."""
    found: dict[str, LimitedUnit] = {}
    for resource in resources:
        for device, memory in resource.memory.items() if resource.sharing != MPS else ():
            if memory.hard < NO_LIMIT:
                one = LimitedUnit(device, memory.hard, resource.name)  # of thousands
                found |= dict.fromkeys(resource.index.ids.get(device, ()), one)
    return found


def depends_on_kubelet(recorded: Iterable[Recorded]) -> bool:
    """Return whether only the kubelet can tell if somebody lives who has a limit to be watched."""
    return any(
        entry.lives is None and entry.in_pod and any(hard is not None for hard in limits)
        for entry in recorded
        if (limits := entry.limits.values())
    )


def holding(
    recorded: Iterable[Recorded], holdings: Holdings, units: Mapping[str, LimitedUnit]
) -> Holding:
    """Return who holds what. Where the kubelet tells nothing, anybody may hold anything."""
    entries = tuple(recorded)
    held = _held(holdings, units)
    by_names: dict[Names, list[GuardedShare]] = {}
    for one in held:
        by_names.setdefault(one.names, []).append(one)
    resources = {unit.device: unit.resource for unit in units.values()}
    # Of whatever units: a container is watched for what it was granted, also when the resource is
    # no longer offered or limited, and one that only begins a pod, whose units are others' by name.
    pods = {(holder.namespace, holder.pod) for holder in holdings.holders.values()}
    shares: dict[Key, GuardShare] = {}
    unsaid: dict[Key, GuardedShare] = {}
    devices: set[str] = set()
    for entry in entries:
        found = _of_entry(entry, resources)
        shares.update((share.key, share) for share in found)
        may_live = not entry.in_pod or holdings.reason or entry.names[:2] in pods
        if entry.lives or (entry.lives is None and may_live):
            devices.update(share.device for share in found)
        if not entry.is_ambiguous:
            own = by_names.get(entry.names, ())
            unsaid |= {(entry.id, one.device): one for one in own if one.device not in entry.limits}
    devices.update(device for _, device in unsaid)
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
    return Holding(known, by_driver, watched, unsaid, unrecorded, frozenset(devices), firsts)


def _held(holdings: Holdings, units: Mapping[str, LimitedUnit]) -> list[GuardedShare]:
    """Return what the kubelet has given to each container of each device, its units added up."""
    sums: dict[tuple[Names, str, str], int] = {}
    for unit, holder in holdings.holders.items():
        limited = units.get(unit)
        if limited is not None:
            names = holder.namespace, holder.pod, holder.container
            key = names, limited.device, limited.resource
            sums[key] = sums.get(key, 0) + limited.hard
    return [GuardedShare(names, device, hard, name) for (names, device, name), hard in sums.items()]


def _of_entry(entry: Recorded, resources: Mapping[str, str]) -> list[GuardShare]:
    """Return the shares of a container that the ledger records and no driver holds."""
    return [
        GuardShare(entry.id, entry.names, device, hard, resources.get(device, ""))
        for device, hard in entry.limits.items()
        if hard is not None
    ]


def unsaid_shares(
    device: str,
    grants: Mapping[str, int | None],
    unsaid: Mapping[Key, GuardedShare],
    hidden: Collection[str] = (),
) -> list[GuardShare]:
    """Return the shares of a device that only the mounts of the ledger's containers tell.

    One whose mounts are `hidden` may have been granted what its units are worth now.
    """
    found = []
    for container, hard in grants.items():
        held = unsaid.get((container, device))
        if held is None or (hard is None and container not in hidden):
            continue
        most, is_certain = (held.hard, False) if hard is None else (hard, True)
        share = GuardShare(
            container, held.names, device, most, held.resource, is_certain=is_certain
        )
        found.append(share)
    return found


def unrecorded_shares(
    device: str,
    grants: Mapping[str, int | None],
    pods: Collection[str],
    unrecorded: Iterable[GuardedShare],
    resource: str = "",
    *,
    hidden: Collection[str] = (),
) -> list[GuardShare]:
    """Return the shares of a device of containers that the ledger does not know.

    `grants` are the containers that use it and the bytes that their mounts grant, None without
    such a mount; `pods` are those of pods. One without is taken for the only holder if there is
    but one of each, which is not certain: others may have been given the device otherwise. One
    whose mounts are `hidden` may be any holder that is left.
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
        found.append(GuardShare(container, names, device, hard, name))
    nameless = [one for one, hard in grants.items() if hard is None and one in pods]
    taken = {share.names for share in found}
    left = [one for one in holders if one.names not in taken]
    if len(left) == 1 and len(nameless) == 1 and len(holders) - len(left) == len(found):
        (one,), (container,) = left, nameless
        found.append(
            GuardShare(container, one.names, device, one.hard, one.resource, is_certain=False)
        )
    elif left:
        most = max(one.hard for one in left)
        found += [
            GuardShare(container, ("", "", container), device, most, resource, is_certain=False)
            for container in nameless
            if container in hidden
        ]
    return found
