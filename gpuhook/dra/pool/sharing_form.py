# SPDX-License-Identifier: Apache-2.0
"""How claims share each device, by the configuration file of the device plugin.

The file and its grammar are those of the plugin. Replicas become slots, the limit of a replica
becomes the memory that a claim consumes by default, and the name of the resource the extended
resource name. The devices of a driver are those that the plugin would offer, and the instances of
a GPU in MIG mode with any MIG strategy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gpuhook.device_plugin.config.grammar.memory_values import CONTEXT_MEMORY, UNLIMITED
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS, NOT_SHARED
from gpuhook.device_plugin.offer import fair_shares, resource_devices
from gpuhook.device_plugin.offer.offered_devices import Resource, Unit, UnitMemory
from gpuhook.device_plugin.offer.replica_sharing import shares
from gpuhook.device_plugin.offer.sharing_warnings import share_warnings
from gpuhook.dra.pool import ineffective_keys
from gpuhook.dra.pool.pool_device import MEMORY, SLOTS, Capacity
from gpuhook.request.memory_request import MIB
from gpuhook.request.replicas import SEPARATOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.device_plugin.config.sharing_section import SharedResource
    from gpuhook.device_plugin.offer.replica_sharing import Share
    from gpuhook.vendors.plugin.vendor_device import Device


@dataclass(frozen=True, slots=True)
class SharingForm:
    """How claims share one device.

    `slots` claims can have it at once; 1: it is not shared. `resource` is the extended resource
    name for its class, "" if none fits. `capacity` has SLOTS of a shared device, and MEMORY in
    bytes unless the memory is unknown or an MPS server does not limit it. `where` is the path of
    the entry in the file.
    """

    device: Device
    resource: str  # "nvidia.com/gpu"
    slots: int = 1
    strategy: str = NOT_SHARED
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    entry: SharedResource | None = None
    where: str = ""

    @property
    def is_shared(self) -> bool:
        """Whether several claims can have the device at once."""
        return self.slots > 1

    @property
    def default_memory(self) -> int:
        """The bytes that a claim consumes without a request, 0 for no limit."""
        return self.capacity[MEMORY].default if MEMORY in self.capacity else 0

    @property
    def offered_name(self) -> str:
        """The name of the resource by which the plugin's services know the device."""
        return self.resource or (self.entry.name if self.entry else "")

    def units(self) -> tuple[Unit, ...]:
        """Return the units of the device: one for each slot, and one in all of memory units."""
        uuid = self.device.uuid
        if not self.is_shared or self.strategy == MEMORY_UNITS:
            return (Unit(uuid, self.device),)
        numbers = range(self.slots)
        return tuple(Unit(f"{uuid}{SEPARATOR}{number}", self.device, number) for number in numbers)


@dataclass(frozen=True, slots=True)
class SharingForms:
    """The forms of a node's devices by UUID, in the order of the devices, and warnings.

    A warning about a key of the file begins with its path.
    """

    forms: Mapping[str, SharingForm] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def resources(self) -> tuple[Resource, ...]:
        """Return the devices as the plugin's services for MPS and policies take them."""
        by_name: dict[str, list[SharingForm]] = {}
        for form in self.forms.values():
            by_name.setdefault(form.offered_name, []).append(form)
        return tuple(_resource(name, own) for name, own in by_name.items())


def sharing_forms(configuration: Configuration, inventory: object, *others: object) -> SharingForms:
    """Return the forms of the devices of some inventories, each of one vendor.

    Raises the faults of the plugin's offer for a configuration that does not fit the node: GH1840
    for MIG strategy single, GH1847 for limits that exceed the memory of a device.
    """
    named = _with_instances(configuration)
    devices, left_out = resource_devices.resource_devices(inventory, named, *others)
    sharing, reserve = configuration.sharing, configuration.own.memory_reserve
    divided, ineffective = shares(devices, sharing, reserve)
    limits = {share: fair_shares.unit_memory(share, sharing.strategy, reserve) for share in divided}
    warnings = [*left_out, *ineffective, *share_warnings(limits, sharing.strategy)]
    forms = {
        share.device.uuid: _form(share, limit, sharing.strategy, reserve)
        for share, limit in limits.items()
    }
    warnings += ineffective_keys.warnings(configuration)
    return SharingForms(forms, tuple(warnings))


def _with_instances(configuration: Configuration) -> Configuration:
    """Return the configuration for names of MIG instances: a driver also offers them with none."""
    flags = configuration.flags
    strategy = "mixed" if flags.mig_strategy == "none" else flags.mig_strategy
    return replace(configuration, flags=replace(flags, mig_strategy=strategy))


def _form(share: Share, limit: UnitMemory | None, strategy: str, reserve: int) -> SharingForm:
    device, entry = share.device, share.entry
    if not share.is_divided or share.replicas < 2:
        memory = {} if device.memory_bytes is None else {MEMORY: Capacity(device.memory_bytes)}
        return SharingForm(device, share.resource, capacity=memory, entry=entry, where=share.where)
    capacity = {SLOTS: Capacity(share.replicas, default=1, least=1, step=1)}
    memory_of_claims = _memory(share, limit, strategy, reserve)
    if memory_of_claims is not None:
        capacity[MEMORY] = memory_of_claims
    # A pod would get one device for each unit that it requests, and not an amount of one device.
    name = "" if strategy == MEMORY_UNITS else share.resource
    return SharingForm(device, name, share.replicas, strategy, capacity, entry, share.where)


def _memory(share: Share, limit: UnitMemory | None, strategy: str, reserve: int) -> Capacity | None:
    """Return the memory of a shared device, None if claims cannot request it."""
    total, entry = share.device.memory_bytes, share.entry
    if total is None or entry is None:
        return None
    if strategy == MPS:
        return None if limit is None else _fixed(total, limit.hard)
    if strategy == MEMORY_UNITS:
        unit = limit.hard if limit is not None else MIB
        return Capacity(_floor(total - reserve, unit), default=unit, least=unit, step=unit)
    if entry.limit == UNLIMITED:
        return Capacity(_floor(total, MIB), step=MIB)
    if limit is None:  # replicas without `memory`: equal parts of the whole device
        usable, each = total, _floor(total // share.replicas, MIB)
    else:
        usable, each = total - reserve, limit.hard
    least = CONTEXT_MEMORY if each >= CONTEXT_MEMORY else min(each, MIB)
    return Capacity(_floor(usable, MIB), default=each, least=least, step=MIB)


def _fixed(total: int, each: int) -> Capacity:
    """Return the memory of a device whose server has one limit for all of its clients."""
    return Capacity(_floor(total, MIB), default=each, least=each, step=MIB, most=each)


def _floor(size: int, step: int) -> int:
    return max(0, size) // step * step


def _resource(name: str, forms: list[SharingForm]) -> Resource:
    shared = [form for form in forms if form.is_shared]
    return Resource(
        name=name,
        units=tuple(unit for form in forms for unit in form.units()),
        sharing=shared[0].strategy if shared else NOT_SHARED,
        is_mig=any(form.device.instance is not None for form in forms),
        memory={
            form.device.uuid: UnitMemory(form.default_memory, form.default_memory)
            for form in shared
            if form.default_memory
        },
        entries={form.device.uuid: form.entry for form in forms if form.entry is not None},
    )
