# SPDX-License-Identifier: Apache-2.0
"""What a node offers to the kubelet: its devices, named, shared and counted as units.

Resources are in the order of their names, units in the order of their devices: GPU by index, its
instances by theirs, all replicas of a device one after the other, from 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuhook.device_plugin.config.configuration import MEMORY_UNITS, MPS, NOT_SHARED, UNITS
from gpuhook.device_plugin.offer import fair_shares, resource_devices
from gpuhook.device_plugin.offer.offered_devices import Resource, Unit
from gpuhook.device_plugin.offer.replica_sharing import Share, shares
from gpuhook.device_plugin.offer.sharing_warnings import doubts
from gpuhook.errors import GpuhookError, fault
from gpuhook.request.memory_request import MIB
from gpuhook.request.replicas import SEPARATOR
from gpuhook.vendors.nvidia.spec.device_selection import instance_trouble, trouble

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.offer.offered_devices import UnitMemory
    from gpuhook.vendors.nvidia.inventory.inventory import Node

MAX_ID = 63  # characters of a device id: api.proto of the device plugin API, v1beta1
MAX_MESSAGE = 4 << 20  # bytes that the kubelet's gRPC client takes in one message
_AROUND_ID = 24  # bytes of a Device message beside its id: health "Unhealthy", one NUMA node
_AROUND_UNIT = 16  # the same without a NUMA node
_CONTRADICTIONS = ("GH1840", "GH1847", "GH1848")
_REPLICA = 2 + 6  # "::" and the digits of a replica


@dataclass(frozen=True, slots=True)
class Offer:
    """The resources of a node, and what was wrong or doubtful on the way to them."""

    resources: tuple[Resource, ...]
    warnings: tuple[str, ...]


def offered(node: Node, configuration: Configuration) -> Offer:
    """Return what `node` offers under `configuration`; a resource without units is not in it.

    Lost GPUs and instances with trouble are in it: unusable() says which, to be reported as
    unhealthy. Raises what contradicts() knows: GH1840 where MIG strategy single meets
    GPUs that are not alike, GH1847 where limits promise more memory than there is, GH1848 for
    memory units that cannot be. What is about an entry of `sharing` begins with its place.
    """
    devices, left_out = resource_devices.resource_devices(node, configuration)
    sharing, reserve = configuration.sharing, configuration.own.memory_reserve
    divided, ineffective = shares(devices, sharing, reserve)
    by_name: dict[str, list[Share]] = {}
    for share in divided:
        by_name.setdefault(share.resource, []).append(share)
    limits = {share: fair_shares.of_unit(share, sharing.strategy, reserve) for share in divided}
    warnings = [*left_out, *ineffective, *doubts(limits, sharing.strategy)]
    resources = []
    for name, own in sorted(by_name.items()):
        resource = _resource(name, {share: limits[share] for share in own}, configuration, warnings)
        warnings += _long_ids(resource)
        resources.append(resource)
    return Offer(tuple(resources), tuple(warnings))


def contradicts(error: Exception) -> bool:
    """Return whether a fault is one of offered(): the configuration is not for this node."""
    return isinstance(error, GpuhookError) and error.code in _CONTRADICTIONS


def unusable(node: Node) -> dict[str, str]:
    """Return the reason of each device that cannot be given to a container, by its UUID.

    What troubles a GPU troubles its instances.
    """
    found = {}
    for gpu in node.gpus:
        reason = trouble(node, gpu)
        if reason and gpu.uuid:
            found[gpu.uuid] = reason
        for instance in gpu.instances:
            own = (
                f"its GPU {gpu.index}: {reason}"
                if reason
                else instance_trouble(node, gpu, instance)
            )
            if own and instance.uuid:
                found[instance.uuid] = own
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
            f"{MAX_MESSAGE >> 20} MiB that the kubelet takes: at most {most} replicas of a "
            "device are offered"
        )
    # The clients of an MPS server do not add up: NVIDIA's plugin always refuses more than one.
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


def _units(share: Share, most: int | None) -> Iterator[Unit]:
    uuid = share.device.uuid
    if not share.is_divided:
        yield Unit(uuid, share.device)
        return
    count = share.replicas if most is None else min(share.replicas, most)
    for replica in range(count):
        yield Unit(f"{uuid}{SEPARATOR}{replica}", share.device, replica)


def _check_units(name: str, own: Iterable[Share], reserve: int) -> None:
    """Raise GH1848 where units are no units: of several sizes, of less than 1 MiB, or too many."""
    sizes = sorted({share.entry.unit or 0 for share in own if share.entry is not None})
    entry = next(share.where for share in own if share.entry is not None)
    if len(sizes) > 1 or sizes[0] < MIB:
        told = " and ".join(_size(size) for size in sizes)
        reason = f"its units are of {told}, and have to be of one size, 1 MiB at least"
        raise fault("GH1848", entry=entry, resource=name, reason=reason)

    def fits(unit: int) -> bool:
        counts = ((s, fair_shares.fitting(s.device, unit, reserve) or 0) for s in own)
        each = _REPLICA + _AROUND_UNIT
        return sum(count * (len(s.device.uuid) + each) for s, count in counts) <= MAX_MESSAGE

    unit = sizes[0]
    if fits(unit):
        return
    too_small, fitting = unit // MIB, 2 * unit // MIB
    while not fits(fitting * MIB):
        too_small, fitting = fitting, 2 * fitting
    while fitting - too_small > 1:
        middle = (too_small + fitting) // 2
        too_small, fitting = (too_small, middle) if fits(middle * MIB) else (middle, fitting)
    count = sum(share.replicas for share in own)
    reason = (
        f"{count} units of {unit // MIB} MiB do not fit into the {MAX_MESSAGE >> 20} MiB that the "
        f"kubelet takes; the smallest unit that does is {fitting} MiB"
    )
    raise fault("GH1848", entry=entry, resource=name, reason=reason)


def _size(unit: int) -> str:
    for word, scale in UNITS.items():
        if unit and unit % scale == 0:
            return f"{unit // scale} {word}"
    return f"{unit} bytes"


def _most_replicas(own: Collection[Share]) -> int | None:
    """Return how many replicas of each device one message carries, None if it carries all."""

    def size(most: int) -> int:
        return sum(
            min(share.replicas, most) * (len(share.device.uuid) + _REPLICA + _AROUND_ID)
            for share in own
        )

    fits, too_many = 1, max(share.replicas for share in own) + 1
    if size(too_many) <= MAX_MESSAGE:
        return None
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        fits, too_many = (middle, too_many) if size(middle) <= MAX_MESSAGE else (fits, middle)
    return fits


def _long_ids(resource: Resource) -> list[str]:
    long = [unit.id for unit in resource.units if len(unit.id) > MAX_ID]
    if not long:
        return []
    many = f"{len(long)} of {len(resource.units)}"
    limit = f"the {MAX_ID} characters that a device id may have"
    return [f"{resource.name}: {many} device ids are longer than {limit}, such as {long[0]}"]
