# SPDX-License-Identifier: Apache-2.0
"""The number of units of each device, and the resource that offers them.

Entries of `sharing.*.resources` apply in their order, and a device belongs to the first entry
that selects it: `devices: all` after other entries of the same name selects all other devices. A
device without an entry is offered unshared, except by a resource of memory units, which offers only
units.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS
from gpuhook.device_plugin.offer import fair_shares
from gpuhook.request.memory_request import MIB
from gpuhook.vendors.plugin.vendor_device import selector_key

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.config.sharing_section import SharedResource, Sharing
    from gpuhook.device_plugin.offer.offered_devices import Device
    from gpuhook.vendors.plugin.vendor_device import NamedDevice

_SECTIONS = {MPS: "mps", MEMORY_UNITS: "memoryUnits"}


@dataclass(frozen=True, slots=True)
class Share:
    """A device and the number of its units; one unit is the device itself, unless it has a size.

    `entry` is the configuration's entry for the device, None without one, and `where` its path in
    the file: sharing.timeSlicing.resources[0].
    """

    resource: str  # after renaming
    device: Device
    replicas: int = 1
    entry: SharedResource | None = None
    where: str = ""

    @property
    def is_divided(self) -> bool:
        """Whether a unit is a part of the device, even if its size allows only one."""
        return self.replicas > 1 or (self.entry is not None and not self.entry.replicas)

    @property
    def memory_each(self) -> int | None:
        """The bytes of device memory of each unit if all have the same."""
        total = self.device.memory_bytes
        return None if total is None else total // self.replicas

    @property
    def model(self) -> str:
        """The model, with the profile of a MIG instance."""
        name = self.device.model or "GPU"
        return f"{name} {self.device.profile}" if self.device.profile else name


def shares(
    devices: tuple[NamedDevice, ...], sharing: Sharing, reserve: int = 0
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """Return (the shares of `devices`, in their order; warnings about keys without effect).

    `reserve` bytes of each device remain free. A device that is too small for one unit, or whose
    memory is unknown, has no share.
    """
    names = sorted({named.resource for named in devices})
    by_device: dict[str, SharedResource] = {}
    warnings: list[str] = []
    for number, entry in enumerate(sharing.resources):
        where = f"{_section(sharing)}[{number}]"
        if entry.name not in names:
            warnings.append(f"{where}: {_unknown(entry.name, names)}")
            continue
        own = [named for named in devices if named.resource == entry.name]
        selected = _selected(entry, own, where, warnings)
        free = [named for named in selected if named.device.uuid not in by_device]
        others = [named.device.index for named in selected if named not in free]
        if others and (entry.devices != "all" or not free):
            indices = ", ".join(others)
            warnings.append(f"{where}: earlier entries of {entry.name} have device {indices}")
        by_device |= dict.fromkeys((named.device.uuid for named in free), entry)
    found = [_share(named, by_device.get(named.device.uuid), sharing, reserve) for named in devices]
    offered = [pair for pair in zip(devices, found, strict=True) if pair[1].replicas]
    warnings += [_too_small(share, sharing, reserve) for share in found if not share.replicas]
    if sharing.strategy == MEMORY_UNITS:
        offered = _only_units(offered, warnings)
    return tuple(share for _, share in offered), (*warnings, *_mixed_names(offered))


def _only_units(
    offered: list[tuple[NamedDevice, Share]], warnings: list[str]
) -> list[tuple[NamedDevice, Share]]:
    """Omit whole devices under the name of units: each would be one unit."""
    units = {share.resource for _, share in offered if share.entry is not None}
    whole = [share for _, share in offered if share.entry is None and share.resource in units]
    warnings += [
        f"{share.resource}: device {share.device.index} ({share.model}) is not offered: no entry "
        "of sharing.memoryUnits selects it, and the other devices with that name are memory units"
        for share in whole
    ]
    return [(named, share) for named, share in offered if share not in whole]


def _too_small(share: Share, sharing: Sharing, reserve: int) -> str:
    """Return the warning for a device that is too small for one unit."""
    size = fair_shares.unit_size(share.entry, sharing.strategy) if share.entry else None
    unit = "unit" if sharing.strategy == MEMORY_UNITS else "replica"
    where = f"{share.resource}: device {share.device.index} ({share.model}) is not offered"
    total = share.device.memory_bytes
    if total is None:
        reason = "the driver does not report its memory"
        return f"{where}: {reason}, so its number of {unit}s is unknown"
    return (
        f"{where}: its {total // MIB} MiB, less {reserve // MIB} MiB of reserve, are less than a "
        f"{unit} of {(size or 0) // MIB} MiB"
    )


def _mixed_names(offered: list[tuple[NamedDevice, Share]]) -> list[str]:
    """Return a warning for each name that offers devices of several resources."""
    before: dict[str, dict[str, None]] = {}
    for named, share in offered:
        before.setdefault(share.resource, {})[named.resource] = None
    return [
        f"{name} has the devices of {' and of '.join(sorted(names))}: a container that "
        "requests it can get any of them"
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
    size = fair_shares.unit_size(entry, sharing.strategy)
    if size is None:
        count = max(entry.replicas, 1)
    else:
        count = fair_shares.fitting(named.device, size, reserve) or 0
    where = f"{_section(sharing)}[{sharing.resources.index(entry)}]"
    return Share(name, named.device, count, entry, where)


def _selected(
    entry: SharedResource, own: list[NamedDevice], where: str, warnings: list[str]
) -> list[NamedDevice]:
    """Return those of its resource's devices that `entry` selects."""
    if isinstance(entry.devices, int):
        if entry.devices > len(own):
            warnings.append(
                f"{where}: it selects the first {entry.devices} devices of "
                f"{entry.name}, but this node has {len(own)}"
            )
        return own[: max(entry.devices, 0)]
    if isinstance(entry.devices, str):
        return own
    selected: set[str] = set()
    for name in entry.devices:
        key = selector_key(name)
        matching = {named.device.uuid for named in own if key in named.names}
        selected |= matching
        if not matching:
            warnings.append(f"{where}: no device of {entry.name} has the name {name!r}")
    return [named for named in own if named.device.uuid in selected]


def _unknown(name: str, names: list[str]) -> str:
    if not names:
        return f"{name} is not shared: this node has no device to offer"
    import difflib  # not needed at a normal start

    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"this node has no resource {name}, only {', '.join(names)}{hint}"
