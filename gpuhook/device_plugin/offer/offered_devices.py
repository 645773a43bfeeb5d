# SPDX-License-Identifier: Apache-2.0
"""The resources that the kubelet is offered. Their units are devices, or shares of one."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuhook.device_plugin.config.sharing_section import MOST_CLIENTS
from gpuhook.request.replicas import SEPARATOR
from gpuhook.vendors.vendor_device import Device as Device  # noqa: PLC0414 # a part of Unit
from gpuhook.vendors.vendor_device import capability

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuhook.device_plugin.config.sharing_section import SharedResource

# Clients of MPS that one device can serve, by the first compute capability that can.
_CLIENTS = (((7, 0), MOST_CLIENTS), ((3, 5), 16))


@dataclass(frozen=True, slots=True)
class Unit:
    """One device of the kubelet; `id` is a UUID or `<uuid>::<replica>`."""

    id: str
    device: Device
    replica: int | None = None


@dataclass(frozen=True, slots=True)
class UnitMemory:
    """The memory limit of one unit, in bytes: whole MiB.

    `soft` of it is guaranteed. `is_asked`: a request for the unit is a request for memory.
    """

    hard: int
    soft: int
    is_asked: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """Lookups of units, of which a resource can have tens of thousands."""

    positions: Mapping[str, int]  # in Resource.units, by id, in their order
    devices: tuple[Device, ...]  # the distinct ones, in their order
    ids: Mapping[str, Sequence[str]]  # of the units of each device, by its UUID, in their order


@dataclass(frozen=True, slots=True)
class Resource:
    """An extended resource of the node and all of its units, in their order.

    `memory` has the limit of a unit by device UUID; a device that is not in it has no limit.
    `entries` are those of the configuration, by device UUID.
    """

    name: str  # "nvidia.com/gpu"
    units: tuple[Unit, ...]
    sharing: str = "none"  # "none", "time-slicing", "mps" or "memory-units"
    refuses_more_than_one: bool = False  # failRequestsGreaterThanOne
    is_mig: bool = False
    memory: Mapping[str, UnitMemory] = field(default_factory=dict)
    entries: Mapping[str, SharedResource] = field(default_factory=dict)
    index: Index = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", _indexed(self.units))

    @property
    def domain(self) -> str:
        """The vendor's: "nvidia.com"."""
        return self.name.partition("/")[0]

    @property
    def devices(self) -> tuple[Device, ...]:
        """The distinct devices of the units, in their order."""
        return self.index.devices


def unit_id(identifier: str) -> str:
    """Return the id of a unit in the form of this plugin.

    A fork of AMD's device plugin writes `<device>-slice-<n>` for `<device>::<n>`.
    """
    device, found, number = identifier.rpartition("-slice-")
    return f"{device}{SEPARATOR}{number}" if found and number.isdecimal() else identifier


def _indexed(units: Sequence[Unit]) -> Index:
    positions = {unit.id: position for position, unit in enumerate(units)}
    devices: dict[str, Device] = {}
    ids: dict[str, list[str]] = {}
    for unit in units:
        uuid = unit.device.uuid
        if uuid not in devices:
            devices[uuid] = unit.device
            ids[uuid] = []
        ids[uuid].append(unit.id)
    return Index(positions, tuple(devices.values()), ids)


def most_clients(compute_capability: str | None) -> int | None:
    """Return the number of MPS clients of a device, 0 without MPS, None if it is unknown."""
    found = capability(compute_capability)
    if found is None:
        return None
    return next((most for first, most in _CLIENTS if found >= first), 0)
