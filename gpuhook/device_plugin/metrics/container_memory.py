# SPDX-License-Identifier: Apache-2.0
"""The memory of a GPU that each container uses, with its limit and its fair share.

Pure. It combines three sources, each of which may be missing: the driver reports the memory of each
process, the process's cgroup names its container, and the ledger and the kubelet know which
container holds which unit. The fair share of a unit is its guaranteed memory, else the device's
memory divided by the number of units. The limit of a container is the one in the ledger; of a
container without an entry, that of the units that it holds. A container with an entry and without a
limit is older than the limit of its units.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from gpuhook.device_plugin.offer.sharing_notes import limit_enforcer
from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.vendors.usage.device_isolation import BY_MPS, BY_NOBODY
from gpuhook.vendors.usage.usage_device import process_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from gpuhook.device_plugin.metrics.cgroup_names import Membership
    from gpuhook.device_plugin.metrics.unit_holders import Holder
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource
    from gpuhook.vendors.usage.usage_device import ProcessOnDevice


@dataclass(frozen=True, slots=True)
class MemoryShare:
    """The share of one unit in its device, in bytes. `hard` None: no limit.

    `by` names the component that enforces the limit of a container without a limit in the ledger,
    which is never the driver.
    """

    device: str
    fair: int | None = None
    hard: int | None = None
    soft: int | None = None
    by: str = BY_NOBODY


@dataclass(frozen=True, slots=True)
class MemoryLimitFact:
    """The memory limit of a container on one device in the ledger, in bytes."""

    device: str
    hard: int
    soft: int
    by: str = BY_NOBODY  # what enforces it, if it was read back

    @property
    def is_held(self) -> bool:
        """Whether the driver or the kernel enforces it."""
        return self.by != BY_NOBODY


class ClaimedDevice(NamedTuple):
    """A device that a container has by a claim: "namespace/name", and the id of a share or ""."""

    claim: str
    share: str
    device: str


@dataclass(frozen=True, slots=True)
class HolderEntry:
    """The ledger entry of a container: its id, its names in Kubernetes, its units and claims."""

    id: str
    namespace: str = ""
    pod: str = ""
    container: str = ""
    units: tuple[str, ...] = ()  # replica ids, or UUIDs of whole devices
    memory: tuple[MemoryLimitFact, ...] = ()
    claims: tuple[ClaimedDevice, ...] = ()

    @property
    def names(self) -> Names:
        """Return the names for metrics; outside of Kubernetes the id is the container's name."""
        return (self.namespace, self.pod, self.container) if self.pod else ("", "", self.id)


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The driver's report on a GPU or MIG instance. None: the driver does not report it."""

    uuid: str
    total_bytes: int | None = None
    used_bytes: int | None = None
    processes: Sequence[ProcessOnDevice] | None = None
    percent: int | None = None  # of the last moments in which the GPU worked


@dataclass(frozen=True, slots=True)
class ContainerMemory:
    """One container on one device. `used_bytes` None: unknown, or not attributable."""

    gpu: str
    namespace: str
    pod: str
    container: str
    used_bytes: int | None
    fair_share_bytes: int | None
    limit_bytes: int | None = None  # None: no limit
    guaranteed_bytes: int | None = None
    limited_by: str = BY_NOBODY  # what enforces the limit: BY_NOBODY and so on


Names = tuple[str, str, str]  # namespace, pod, container


def shares(resources: Iterable[Resource], *, guards: bool = False) -> dict[str, MemoryShare]:
    """Return the share of each unit; `guards`: the plugin terminates processes above a limit."""
    by_unit: dict[str, MemoryShare] = {}
    for resource in resources:
        for device in resource.devices:
            ids = resource.index.ids[device.uuid]
            share = _share(resource, device, len(ids), guards=guards)
            by_unit |= dict.fromkeys(ids, share)
    return by_unit


def _share(resource: Resource, device: Device, count: int, *, guards: bool) -> MemoryShare:
    fair = None if device.memory_bytes is None else device.memory_bytes // count
    memory = resource.memory.get(device.uuid)
    if memory is None:
        return MemoryShare(device.uuid, fair)
    by = limit_enforcer(resource, device, driver=False, guard=guards)
    return MemoryShare(device.uuid, memory.soft or fair, memory.hard, memory.soft, by)


def container_memory(
    uses: Collection[DeviceUse],
    members: Mapping[int, Membership],
    entries: Mapping[str, HolderEntry],
    holders: Mapping[str, Holder],
    units: Mapping[str, MemoryShare],
) -> tuple[ContainerMemory, ...]:
    """Return each container that holds a unit or uses memory of a device, by device and name.

    `units` comes from shares(). A pod's container without a ledger entry is attributed to the only
    holder of a device, if there is exactly one.
    """
    held = _held(holders, entries, units)
    by_device = {share.device: share.by for share in units.values()}
    known = {entry.names for entry in entries.values()}
    for key, share in held.items():
        if key[1] in known and share.by != BY_MPS:
            held[key] = replace(share, hard=None, soft=None, by=BY_NOBODY)
    for entry in entries.values():
        for limit in entry.memory:  # of several containers with one name the newest's
            key = limit.device, entry.names
            held[key] = _as_recorded(held.get(key, MemoryShare(limit.device)), limit, by_device)
    result: dict[tuple[str, Names], ContainerMemory] = {}
    for use in uses:
        on_device = {names: share for (uuid, names), share in held.items() if uuid == use.uuid}
        sole = _sole(use.uuid, holders, units)
        used = _used(use, members, entries, sole)
        for names in dict.fromkeys((*on_device, *used)):
            amount = used.get(names)
            if names not in used and use.processes is not None:
                amount = 0 if names in known or names == sole else None
            if amount is not None or names in on_device:
                share = on_device.get(names, MemoryShare(use.uuid))
                result[use.uuid, names] = ContainerMemory(
                    use.uuid, *names, amount, share.fair, share.hard, share.soft, share.by
                )
    return tuple(result[key] for key in sorted(result))


def unattributed(use: DeviceUse, containers: Iterable[ContainerMemory]) -> int | None:
    """Return the used memory of a device outside of containers: contexts, the host's processes.

    None if the driver does not report the used memory or the processes.
    """
    if use.used_bytes is None or use.processes is None:
        return None
    theirs = sum(one.used_bytes or 0 for one in containers if one.gpu == use.uuid)
    return max(0, use.used_bytes - theirs)


def _held(
    holders: Mapping[str, Holder],
    entries: Mapping[str, HolderEntry],
    units: Mapping[str, MemoryShare],
) -> dict[tuple[str, Names], MemoryShare]:
    """Return the share of each container on each device of which it holds units.

    The kubelet has priority over the ledger, which may have entries of exited containers.
    """
    by_names: dict[Names, set[str]] = {}
    for unit, holder in holders.items():
        by_names.setdefault(holder, set()).add(unit)
    if not holders:
        for entry in entries.values():
            by_names.setdefault(entry.names, set()).update(entry.units)
    shares: dict[tuple[str, Names], MemoryShare] = {}
    for names, ids in by_names.items():
        held = [units[unit] for unit in ids & units.keys()]  # all units of a device are alike
        counts = Counter(share.device for share in held)
        one = {share.device: share for share in held}
        shares |= {(uuid, names): _times(one[uuid], count) for uuid, count in counts.items()}
    return shares


def _times(share: MemoryShare, count: int) -> MemoryShare:
    """Return the share of `count` units."""
    fair, hard, soft = (
        None if one is None else one * count for one in (share.fair, share.hard, share.soft)
    )
    return replace(share, fair=fair, hard=hard, soft=soft)


def _as_recorded(
    share: MemoryShare, limit: MemoryLimitFact, by_device: Mapping[str, str]
) -> MemoryShare:
    hard = None if limit.hard == NO_LIMIT else limit.hard
    by = limit.by if limit.is_held else by_device.get(limit.device, BY_NOBODY)
    return replace(share, hard=hard, soft=limit.soft, by=by)


def _sole(
    uuid: str, holders: Mapping[str, Holder], units: Mapping[str, MemoryShare]
) -> Names | None:
    """Return the only container of a pod that holds units of a device, None if not exactly one."""
    names = {
        holder for unit, holder in holders.items() if unit in units and units[unit].device == uuid
    }
    return names.pop() if len(names) == 1 else None


def _used(
    use: DeviceUse,
    members: Mapping[int, Membership],
    entries: Mapping[str, HolderEntry],
    sole: Names | None,
) -> dict[Names, int | None]:
    """Return the memory of the processes in each container, None if none is reported.

    Processes of the host are skipped.
    """
    amounts: dict[Names, int | None] = {}
    for pid, memory in process_memory(use.processes or ()).items():
        member = members.get(pid)
        identity = member.container(entries) if member else None
        if member is None or identity is None:
            continue
        if identity in entries:
            names = entries[identity].names
        else:
            names = sole if sole and member.in_pod else ("", "", identity)
        if memory is not None:
            amounts[names] = (amounts.get(names) or 0) + memory
        else:
            amounts.setdefault(names, None)
    return amounts
