# SPDX-License-Identifier: Apache-2.0
"""Into how many units each device is divided, and under which resource they are offered.

Entries of `sharing.*.resources` are read in their order, and a device belongs to the first entry
that means it: `devices: all` after other entries of the same name means all other devices. A
device that no entry means stays what it is.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.kubernetes.config.configuration import MPS
from gpuhook.kubernetes.offer import device_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kubernetes.config.configuration import SharedResource, Sharing
    from gpuhook.kubernetes.offer.devices import Device
    from gpuhook.kubernetes.offer.node_devices import Named


@dataclass(frozen=True, slots=True)
class Share:
    """A device and the number of its units; one unit is the device itself, not shared."""

    resource: str  # after renaming
    device: Device
    replicas: int = 1

    @property
    def memory_each(self) -> int | None:
        """The bytes of device memory that each unit has if all take the same."""
        total = self.device.memory_bytes
        return None if total is None else total // self.replicas


def shares(
    devices: tuple[Named, ...], sharing: Sharing
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """Return (the shares of `devices`, in their order; warnings about entries without effect)."""
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
    found = tuple(_share(named, of_device.get(named.device.uuid), sharing) for named in devices)
    return found, (*warnings, *_mixed(devices, found))


def _mixed(devices: tuple[Named, ...], found: tuple[Share, ...]) -> list[str]:
    """Return a warning for each name under which devices of several resources are offered."""
    before: dict[str, dict[str, None]] = {}
    for named, share in zip(devices, found, strict=True):
        before.setdefault(share.resource, {})[named.resource] = None
    return [
        f"{name} has the devices of {' and of '.join(sorted(names))}: a container that asks for "
        "it may get any of them"
        for name, names in before.items()
        if len(names) > 1
    ]


def _section(sharing: Sharing) -> str:
    return f"sharing.{'mps' if sharing.strategy == MPS else 'timeSlicing'}.resources"


def _share(named: Named, entry: SharedResource | None, sharing: Sharing) -> Share:
    if entry is None:
        return Share(named.resource, named.device)
    name = entry.offered_name(by_default=sharing.rename_by_default)
    return Share(name, named.device, max(entry.replicas, 1))


def _meant(entry: SharedResource, own: list[Named], where: str, warnings: list[str]) -> list[Named]:
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
        key = device_names.key(name)
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
