# SPDX-License-Identifier: Apache-2.0
"""The resources that a node offers to the kubelet, with their units.

Resources are in the order of their names, units in the order of their devices: GPUs and instances
by index, the replicas of a device in sequence, from 0.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace

from gpuhook.device_plugin.config.grammar.memory_values import UNITS
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS, NOT_SHARED
from gpuhook.device_plugin.offer import fair_shares, resource_devices
from gpuhook.device_plugin.offer.offered_devices import Resource, Unit
from gpuhook.device_plugin.offer.replica_sharing import Share, shares
from gpuhook.device_plugin.offer.sharing_warnings import share_warnings
from gpuhook.errors import GpuhookError, fault
from gpuhook.request.memory_request import MIB
from gpuhook.request.replicas import SEPARATOR
from gpuhook.vendors.catalogue import vendor_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import UnitMemory

MAX_ID = 63  # characters of a device id: api.proto of the device plugin API, v1beta1
MAX_MESSAGE = 4 << 20  # bytes that the kubelet's gRPC client takes in one message
_AROUND_ID = 24  # bytes of a Device message without its id: health "Unhealthy", one NUMA node
_AROUND_UNIT = 16  # the same without a NUMA node
_CONTRADICTIONS = ("GH1840", "GH1847", "GH1848", "GH2530")
_REPLICA = 2 + 6  # "::" and the digits of a replica


@dataclass(frozen=True, slots=True)
class Offer:
    """The resources of a node, and warnings about them."""

    resources: tuple[Resource, ...]
    warnings: tuple[str, ...]


def offered(inventory: object, configuration: Configuration, *others: object) -> Offer:
    """Return the resources of a node with `configuration`, without those that have no units.

    An inventory has the facts of one vendor's GPUs. The resources include lost GPUs and unusable
    instances: unusable() returns these, to be reported as
    unhealthy. Raises the faults of contradicts(): GH1840 if MIG strategy single cannot
    offer the GPUs together, GH1847 if limits exceed the memory, GH1848 for impossible memory
    units. A message about an entry of `sharing` begins with its path.
    """
    devices, left_out = resource_devices.resource_devices(inventory, configuration, *others)
    sharing, reserve = configuration.sharing, configuration.own.memory_reserve
    divided, ineffective = shares(devices, sharing, reserve)
    by_name: dict[str, list[Share]] = {}
    for share in divided:
        by_name.setdefault(share.resource, []).append(share)
    limits = {share: fair_shares.unit_memory(share, sharing.strategy, reserve) for share in divided}
    warnings = [*left_out, *ineffective, *share_warnings(limits, sharing.strategy)]
    resources = []
    for name, own in sorted(by_name.items()):
        resource = _resource(name, {share: limits[share] for share in own}, configuration, warnings)
        warnings += _long_ids(resource)
        resources.append(resource)
    resources = [_without_ambiguous_mask(one, resources, warnings) for one in resources]
    return Offer(tuple(resources), tuple(warnings))


def contradicts(error: Exception) -> bool:
    """Return whether a fault of offered() means that the configuration does not fit this node."""
    return isinstance(error, GpuhookError) and error.code in _CONTRADICTIONS


def unusable(inventory: object, *others: object) -> dict[str, str]:
    """Return the reason for each device that no container can get, by its UUID."""
    found: dict[str, str] = {}
    for one in (inventory, *others):
        found |= vendor_of(one).unusable(one)
    return found


def _resource(
    name: str,
    own: Mapping[Share, UnitMemory | None],
    configuration: Configuration,
    warnings: list[str],
) -> Resource:
    sharing = configuration.sharing
    is_shared = any(share.is_divided for share in own)
    is_units = is_shared and sharing.strategy == MEMORY_UNITS
    most = None
    if is_units:
        _check_units(name, own, configuration.own.memory_reserve)
    else:
        most = _most_replicas(own)
    if most is not None:
        warnings.append(
            f"{name}: {sum(share.replicas for share in own)} units do not fit into the "
            f"{MAX_MESSAGE >> 20} MiB that the kubelet accepts: at most {most} replicas of a "
            "device are offered"
        )
    # The limits of MPS clients do not add up: NVIDIA's plugin always refuses more than one.
    refuses = sharing.refuses_more_than_one or sharing.strategy == MPS
    return Resource(
        name=name,
        units=tuple(unit for share in own for unit in _units(share, most)),
        sharing=sharing.strategy if is_shared else NOT_SHARED,
        refuses_more_than_one=is_shared and refuses and not is_units,
        is_mig=any(share.device.instance is not None for share in own),
        memory={share.device.uuid: limit for share, limit in own.items() if limit is not None},
        entries={share.device.uuid: share.entry for share in own if share.entry is not None},
    )


def _without_ambiguous_mask(
    resource: Resource, offered: Collection[Resource], warnings: list[str]
) -> Resource:
    """Return a resource without `computeMask` if its vendor has several; adds a warning.

    A mask names GPUs by their indices in the container. The kubelet allocates each resource of a
    container on its own, so with several resources the indices are not known.
    """
    others = [o.name for o in offered if o.domain == resource.domain and o.name != resource.name]
    if not others or not any(entry.compute_mask for entry in resource.entries.values()):
        return resource
    warnings.append(
        f"{resource.name}: computeMask has no effect: a container may also request "
        f"{', '.join(others)}, so the indices of its GPUs, which a mask names, are unknown"
    )
    entries = {uuid: replace(one, compute_mask=None) for uuid, one in resource.entries.items()}
    return replace(resource, entries=entries)


def _units(share: Share, most: int | None) -> Iterator[Unit]:
    uuid = share.device.uuid
    if not share.is_divided:
        yield Unit(uuid, share.device)
        return
    count = share.replicas if most is None else min(share.replicas, most)
    for replica in range(count):
        yield Unit(f"{uuid}{SEPARATOR}{replica}", share.device, replica)


def _check_units(name: str, own: Iterable[Share], reserve: int) -> None:
    """Raise GH1848 for units of several sizes, of less than 1 MiB, or too many units."""
    sizes = sorted({share.entry.unit or 0 for share in own if share.entry is not None})
    entry = next(share.where for share in own if share.entry is not None)
    if len(sizes) > 1 or sizes[0] < MIB:
        listed = " and ".join(_size(size) for size in sizes)
        reason = (
            f"its units have different sizes, {listed}: they must have one size of at least 1 MiB"
        )
        raise fault("GH1848", entry=entry, resource=name, reason=reason)

    def fits(unit: int) -> bool:
        counts = ((s, fair_shares.fitting(s.device, unit, reserve) or 0) for s in own)
        each = _REPLICA + _AROUND_UNIT
        return sum(count * (len(s.device.uuid) + each) for s, count in counts) <= MAX_MESSAGE

    unit = sizes[0]
    if fits(unit):
        return
    largest = max(share.device.memory_bytes or 0 for share in own) // MIB + 1
    mebibytes = range(unit // MIB + 1, largest + 1)
    fitting = mebibytes[bisect_left(mebibytes, True, key=lambda each: fits(each * MIB))]
    count = sum(share.replicas for share in own)
    reason = (
        f"{count} units of {unit // MIB} MiB do not fit into the {MAX_MESSAGE >> 20} MiB that the "
        f"kubelet accepts; the smallest possible unit is {fitting} MiB"
    )
    raise fault("GH1848", entry=entry, resource=name, reason=reason)


def _size(unit: int) -> str:
    for word, scale in UNITS.items():
        if unit and unit % scale == 0:
            return f"{unit // scale} {word}"
    return f"{unit} bytes"


def _most_replicas(own: Collection[Share]) -> int | None:
    """Return the number of replicas of each device that fit into one message, None if all do."""

    def size(most: int) -> int:
        return sum(
            min(share.replicas, most) * (len(share.device.uuid) + _REPLICA + _AROUND_ID)
            for share in own
        )

    counts = range(1, max(share.replicas for share in own) + 1)
    fitting = bisect_right(counts, MAX_MESSAGE, key=size)
    return None if fitting == len(counts) else max(fitting, 1)


def _long_ids(resource: Resource) -> list[str]:
    long = [unit.id for unit in resource.units if len(unit.id) > MAX_ID]
    if not long:
        return []
    many = f"{len(long)} of {len(resource.units)}"
    limit = f"the maximum of {MAX_ID} characters"
    return [f"{resource.name}: {many} device ids are longer than {limit}, such as {long[0]}"]
