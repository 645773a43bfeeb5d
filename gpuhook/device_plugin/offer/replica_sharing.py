# SPDX-License-Identifier: Apache-2.0
"""Into how many units each device is divided, and under which resource they are offered.

Entries of `sharing.*.resources` are read in their order, and a device belongs to the first entry
that means it: `devices: all` after other entries of the same name means all other devices. A
device that no entry means stays what it is, but for memory units: a resource of them has nothing
else.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS
from gpuhook.device_plugin.offer import device_selectors, fair_shares
from gpuhook.request.memory_request import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.sharing_section import SharedResource, Sharing
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.device_plugin.offer.resource_devices import NamedDevice

_SECTIONS = {MPS: "mps", MEMORY_UNITS: "memoryUnits"}


@dataclass(frozen=True, slots=True)
class Share:
    """A device and the number of its units; one unit is the device itself, unless it is counted.

    `entry` is what the configuration says of the device, None for nothing, and `where` the place of
    that in its file: sharing.timeSlicing.resources[0].
    """

    resource: str  # after renaming
    device: Device
    replicas: int = 1
    entry: SharedResource | None = None
    where: str = ""

    @property
    def is_divided(self) -> bool:
        """Whether a unit is a part of the device, be it the only one that the memory allows."""
        return self.replicas > 1 or (self.entry is not None and not self.entry.replicas)

    @property
    def memory_each(self) -> int | None:
        """The bytes of device memory that each unit has if all take the same."""
        total = self.device.memory_bytes
        return None if total is None else total // self.replicas

    @property
    def model(self) -> str:
        """What the device is called where all of its kind are meant."""
        name = self.device.model or "GPU"
        return f"{name} {self.device.profile}" if self.device.profile else name


def shares(
    devices: tuple[NamedDevice, ...], sharing: Sharing, reserve: int = 0
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """Return (the shares of `devices`, in their order; warnings about what has no effect).

    A device that holds no unit of the size that is configured, `reserve` bytes of its memory left
    alone, or of which nobody knows how many, has no share.
    """
    names = sorted({named.resource for named in devices})
    of_device: dict[str, SharedResource] = {}
    warnings: list[str] = []
    for number, entry in enumerate(sharing.resources):
        where = f"{_section(sharing)}[{number}]"
        if entry.name not in names:
            warnings.append(f"{where}: {_unknown(entry.name, names)}")
            continue
        own = [named for named in devices if named.resource == entry.name]
        meant = _meant(entry, own, where, warnings)
        free = [named for named in meant if named.device.uuid not in of_device]
        taken = [named.device.index for named in meant if named not in free]
        if taken and (entry.devices != "all" or not free):
            indices = ", ".join(taken)
            warnings.append(f"{where}: earlier entries for {entry.name} have device {indices}")
        of_device |= dict.fromkeys((named.device.uuid for named in free), entry)
    found = [_share(named, of_device.get(named.device.uuid), sharing, reserve) for named in devices]
    held = [(named, share) for named, share in zip(devices, found, strict=True) if share.replicas]
    warnings += [_holds_none(share, sharing, reserve) for share in found if not share.replicas]
    if sharing.strategy == MEMORY_UNITS:
        held = _units_alone(held, warnings)
    return tuple(share for _, share in held), (*warnings, *_mixed(held))


def _units_alone(
    held: list[tuple[NamedDevice, Share]], warnings: list[str]
) -> list[tuple[NamedDevice, Share]]:
    """Return `held` without whole devices under a name of units: one would count as a unit."""
    units = {share.resource for _, share in held if share.entry is not None}
    left = [share for _, share in held if share.entry is None and share.resource in units]
    warnings += [
        f"{share.resource}: device {share.device.index} ({share.model}) is not offered: no entry "
        "of sharing.memoryUnits means it, and the others of that name are memory units"
        for share in left
    ]
    return [(named, share) for named, share in held if share not in left]


def _holds_none(share: Share, sharing: Sharing, reserve: int) -> str:
    """Return why a device holds no unit of the size that its entry says."""
    size = fair_shares.size_of_one(share.entry, sharing.strategy) if share.entry else None
    unit = "unit" if sharing.strategy == MEMORY_UNITS else "replica"
    where = f"{share.resource}: device {share.device.index} ({share.model}) is not offered"
    total = share.device.memory_bytes
    if total is None:
        return f"{where}: the driver does not tell its memory, so nobody knows how many {unit}s"
    return (
        f"{where}: its {total // MIB} MiB, less {reserve // MIB} MiB of reserve, hold no {unit} "
        f"of {(size or 0) // MIB} MiB"
    )


def _mixed(held: list[tuple[NamedDevice, Share]]) -> list[str]:
    """Return a warning for each name under which devices of several resources are offered."""
    before: dict[str, dict[str, None]] = {}
    for named, share in held:
        before.setdefault(share.resource, {})[named.resource] = None
    return [
        f"{name} has the devices of {' and of '.join(sorted(names))}: a container that asks for "
        "it may get any of them"
        for name, names in before.items()
        if len(names) > 1
    ]


def _section(sharing: Sharing) -> str:
    return f"sharing.{_SECTIONS.get(sharing.strategy, 'timeSlicing')}.resources"


def _share(
    named: NamedDevice, entry: SharedResource | None, sharing: Sharing, reserve: int
) -> Share:
    if entry is None:
        return Share(named.resource, named.device)
    name = entry.offered_name(by_default=sharing.rename_by_default)
    size = fair_shares.size_of_one(entry, sharing.strategy)
    if size is None:
        count = max(entry.replicas, 1)
    else:
        count = fair_shares.fitting(named.device, size, reserve) or 0
    where = f"{_section(sharing)}[{sharing.resources.index(entry)}]"
    return Share(name, named.device, count, entry, where)


def _meant(
    entry: SharedResource, own: list[NamedDevice], where: str, warnings: list[str]
) -> list[NamedDevice]:
    """Return the devices that `entry` means, of those that its resource has."""
    if isinstance(entry.devices, int):
        if entry.devices > len(own):
            warnings.append(
                f"{where}: the first {entry.devices} devices of {entry.name} are meant, "
                f"this node has {len(own)}"
            )
        return own[: max(entry.devices, 0)]
    if isinstance(entry.devices, str):
        return own
    meant: set[str] = set()
    for name in entry.devices:
        key = device_selectors.key(name)
        matching = {named.device.uuid for named in own if key in named.names}
        meant |= matching
        if not matching:
            warnings.append(f"{where}: no device of {entry.name} is {name!r}")
    return [named for named in own if named.device.uuid in meant]


def _unknown(name: str, names: list[str]) -> str:
    if not names:
        return f"{name} is not shared: this node has no device to offer"
    import difflib  # it is no part of a start that goes well

    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"this node has no resource {name}, only {', '.join(names)}{hint}"
