# SPDX-License-Identifier: Apache-2.0
"""Determines the memory shares that the guard must enforce: those that no driver enforces.

Pure. The ledger has the grant of a container, and whether the driver enforces it. For a container
without a limit in the ledger, the kubelet reports the units of its pod, and the mounts of the
container show its grant: the limit of a unit may have been another one, or none, when the container
started.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from gpuhook.device_plugin.config.sharing_section import MPS
from gpuhook.request.memory_request import NO_LIMIT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuhook.device_plugin.guard.container_processes import FirstProcess
    from gpuhook.device_plugin.guard.ledger_limits import LedgerLimits
    from gpuhook.device_plugin.metrics.container_memory import Names
    from gpuhook.device_plugin.metrics.unit_holders import Holdings
    from gpuhook.device_plugin.offer.offered_devices import Resource

Key = tuple[str, str]  # the id of a container, the UUID of a device


@dataclass(frozen=True, slots=True)
class LimitedUnit:
    """A unit with a limit: `hard` bytes of a device."""

    device: str
    hard: int
    resource: str


@dataclass(frozen=True, slots=True)
class GuardShare:
    """The limit of one container on one device, in bytes.

    `is_certain` is false if the container was identified only as the last possible holder.
    """

    container: str  # the id; "" for units of a holder whose container is not identified yet
    names: Names
    device: str
    hard: int
    resource: str = ""  # "" outside of Kubernetes
    is_certain: bool = True

    @property
    def key(self) -> Key:
        return self.container, self.device

    @property
    def label(self) -> str:
        """Return the name of the container in messages."""
        named = [word for word in self.names if word]
        return "/".join(named) if self.names[1] else self.container[:12]


@dataclass(frozen=True, slots=True)
class Holding:
    """The shares that are known without the driver.

    `known` has the ids of the ledger's containers, `by_driver` the limits that the driver enforces.
    `unspecified` are the ledger's containers that hold units without a recorded limit: their mounts
    show whether they have one. `unrecorded` are holders without an entry. `devices` must be
    sampled; without any, the guard has nothing to watch. `firsts` are the known first processes of
    the ledger's containers.
    """

    known: frozenset[str] = frozenset()
    by_driver: frozenset[Key] = frozenset()
    shares: Mapping[Key, GuardShare] = field(default_factory=dict)
    unspecified: Mapping[Key, GuardShare] = field(default_factory=dict)
    unrecorded: tuple[GuardShare, ...] = ()
    devices: frozenset[str] = frozenset()
    firsts: Mapping[str, FirstProcess] = field(default_factory=dict)


def limited_units(resources: Iterable[Resource]) -> dict[str, LimitedUnit]:
    """Return the units with a memory limit, by id, without those that MPS enforces."""
    units: dict[str, LimitedUnit] = {}
    for resource in resources:
        for device, memory in resource.memory.items() if resource.sharing != MPS else ():
            if memory.hard < NO_LIMIT:
                unit = LimitedUnit(device, memory.hard, resource.name)  # one for thousands of ids
                units |= dict.fromkeys(resource.index.ids.get(device, ()), unit)
    return units


def depends_on_kubelet(recorded: Iterable[LedgerLimits]) -> bool:
    """Return whether only the kubelet knows if a container with an unenforced limit is alive."""
    return any(
        entry.lives is None and entry.in_pod and any(hard is not None for hard in limits)
        for entry in recorded
        if (limits := entry.limits.values())
    )


def holding(
    recorded: Iterable[LedgerLimits], holdings: Holdings, units: Mapping[str, LimitedUnit]
) -> Holding:
    """Return the known shares. Without the kubelet any container may hold any unit."""
    entries = tuple(recorded)
    held = _held(holdings, units)
    unspecified = _unspecified(entries, held)
    resources = {unit.device: unit.resource for unit in units.values()}
    # With units of any resource: a container is watched also if its resource is no longer offered
    # or limited, and also an init container, whose units the kubelet lists by other names.
    pods = {(holder.namespace, holder.pod) for holder in holdings.holders.values()}
    shares: dict[Key, GuardShare] = {}
    devices = {device for _, device in unspecified}
    for entry in entries:
        own_shares = [
            GuardShare(entry.id, entry.names, device, hard, resources.get(device, ""))
            for device, hard in entry.limits.items()
            if hard is not None  # else the driver enforces it
        ]
        shares.update((share.key, share) for share in own_shares)
        may_live = not entry.in_pod or holdings.reason or entry.names[:2] in pods
        if entry.lives or (entry.lives is None and may_live):
            devices.update(share.device for share in own_shares)
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
    return Holding(known, by_driver, watched, unspecified, unrecorded, frozenset(devices), firsts)


def _unspecified(
    entries: Iterable[LedgerLimits], held: Iterable[GuardShare]
) -> dict[Key, GuardShare]:
    by_names: dict[Names, list[GuardShare]] = {}
    for one in held:
        by_names.setdefault(one.names, []).append(one)
    return {
        (entry.id, one.device): replace(one, container=entry.id)
        for entry in entries
        if not entry.is_ambiguous
        for one in by_names.get(entry.names, ())
        if one.device not in entry.limits
    }


def _held(holdings: Holdings, units: Mapping[str, LimitedUnit]) -> list[GuardShare]:
    """Return the units of each container by device, added up."""
    sums: dict[tuple[Names, str, str], int] = {}
    for unit, holder in holdings.holders.items():
        limited = units.get(unit)
        if limited is not None:
            key = holder, limited.device, limited.resource
            sums[key] = sums.get(key, 0) + limited.hard
    return [
        GuardShare("", names, device, hard, name) for (names, device, name), hard in sums.items()
    ]


def unspecified_shares(
    device: str,
    grants: Mapping[str, int | None],
    unspecified: Mapping[Key, GuardShare],
    hidden: Collection[str] = (),
) -> list[GuardShare]:
    """Return the shares of a device that only the mounts of the ledger's containers show.

    A container whose mounts are `hidden` may have the current limit of its units.
    """
    shares = []
    for container, hard in grants.items():
        held = unspecified.get((container, device))
        if held is not None and hard is not None:
            shares.append(replace(held, hard=hard))
        elif held is not None and container in hidden:
            shares.append(replace(held, is_certain=False))
    return shares


def unrecorded_shares(
    device: str,
    grants: Mapping[str, int | None],
    pods: Collection[str | None],
    unrecorded: Iterable[GuardShare],
    resource: str = "",
    *,
    hidden: Collection[str] = (),
) -> list[GuardShare]:
    """Return the shares of a device of containers without a ledger entry.

    `grants` are the containers that use it with the bytes that their mounts grant, None without
    such a mount; `pods` are the containers of pods. A container with a grant has the names of a
    holder only if no other pair fits. If there is exactly one container without a mount and one
    remaining holder, they are matched, which is not certain: a container may have got the device by
    other means. A container whose mounts are `hidden` may be any remaining holder.
    """
    holders = [one for one in unrecorded if one.device == device]
    limits = {container: hard for container, hard in grants.items() if hard is not None}
    matches = _matches(limits, holders)

    def share(container: str, hard: int, *, is_certain: bool = True) -> GuardShare:
        names = ("", "", container)
        return GuardShare(container, names, device, hard, resource, is_certain=is_certain)

    shares = [
        replace(matches.get(container, share(container, hard)), container=container, hard=hard)
        for container, hard in limits.items()
    ]
    nameless = [one for one, hard in grants.items() if hard is None and one in pods]
    taken = {one.names for one in shares}
    left = [one for one in holders if one.names not in taken]
    if len(left) == 1 and len(nameless) == 1 and len(holders) - len(left) == len(shares):
        return [*shares, replace(left[0], container=nameless[0], is_certain=False)]
    if not left:
        return shares
    most = max(one.hard for one in left)
    return [*shares, *(share(one, most, is_certain=False) for one in nameless if one in hidden)]


def _matches(limits: Mapping[str, int], holders: list[GuardShare]) -> dict[str, GuardShare]:
    """Return the holder of each container with a grant that fits one holder, and it alone.

    A single holder fits any grant: its units may have had another limit when it started. The
    kubelet's list may be older than a container, so that several containers fit one holder.
    """
    by_container: dict[str, GuardShare] = {}
    for container, hard in limits.items():
        fitting = holders if len(holders) == 1 else [one for one in holders if one.hard == hard]
        if len(fitting) == 1:
            by_container[container] = fitting[0]
    counts = Counter(by_container.values())
    return {container: one for container, one in by_container.items() if counts[one] == 1}
