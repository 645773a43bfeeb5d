# SPDX-License-Identifier: Apache-2.0
"""The allocation of one container for the units that the kubelet selected.

Pure. The strategies set its form: a variable, mounts, CDI names, or device nodes and the files of
the driver. Units are sorted by their order in the resource, since the kubelet's order is that of a
set: the same units give the same answer.

CDI names have UUIDs with any id strategy: the kubelet keeps an answer for restarts of the
container, when an index may belong to another GPU.
"""

from __future__ import annotations

import re
from binascii import crc32
from collections import Counter
from itertools import compress
from operator import attrgetter

from gpuhook.device_plugin.allocate import compute_masks, interposers, memory_grants
from gpuhook.device_plugin.allocate.allocation_context import CDI_STRATEGIES
from gpuhook.device_plugin.allocate.auxiliary_devices import IMEX
from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS
from gpuhook.device_plugin.offer import memory_units
from gpuhook.device_plugin.offer.offered_devices import unit_id
from gpuhook.errors import fault
from gpuhook.request.parse import Vocabulary
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.vendor_part import plugin_vendor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gpuhook.device_plugin.allocate.allocation_context import Context
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit

IMEX_ENV = "NVIDIA_IMEX_CHANNELS"
_NEAREST = 3
_UUID = attrgetter("device.uuid")  # of a unit's device


def allocate(resource: Resource, ids: Sequence[str], context: Context) -> Allocation:
    """Return the allocation of one container for the units `ids` of `resource`; no id, no GPU.

    Duplicate ids are ignored. Raises GH1850 for an unknown id, GH1851 for an unhealthy one, GH1852
    for more than one if the configuration forbids that, GH1853 without a working strategy, GH1854
    if MPS does not run, GH1859 for memory units of several devices, GH1836 to GH1839 for
    interposers.
    """
    units = units_of(resource, ids)
    context = context.of_resource(resource)
    if not units:
        return Allocation(envs={context.words.devices_env: "void"})
    counts = Counter(map(_UUID, units))
    _require(resource, units, counts, context)
    devices = tuple(device for device in resource.devices if device.uuid in counts)
    parts = [_STRATEGIES[name](devices, context) for name in context.strategies]
    parts.append(_features(context))
    if context.pass_device_specs and not set(context.strategies) <= set(CDI_STRATEGIES):
        parts.append(_nodes(devices, context))
    if resource.sharing == MPS:
        parts.append(context.mps[resource.name])
    parts.append(memory_grants.grants(resource, counts))
    # There are thousands of memory units, and their grant has the amount.
    replicas = () if resource.sharing == MEMORY_UNITS else units
    names = [unit.id for unit in replicas if unit.replica is not None]
    if names:
        parts.append(Allocation(envs={_replicas_env(resource): ",".join(names)}))
    parts.append(memory_grants.hints(resource, counts))
    parts.append(compute_masks.compute_mask(resource, units))
    # Interposers are first: the variables of grants, which follow, take precedence.
    return merged([interposers.interposer_edits(resource, counts, context.interposers), *parts])


def units_of(resource: Resource, ids: Iterable[str]) -> list[Unit]:
    """Return the distinct units `ids` in the resource's order; raises GH1850 for an unknown id."""
    requested = dict.fromkeys(map(unit_id, ids))
    known = resource.index.positions
    if not known.keys() >= requested.keys():
        unknown = next(identifier for identifier in requested if identifier not in known)
        nearest = ", ".join(_nearest(unknown, list(known))) or "none"
        raise fault("GH1850", id=unknown, resource=resource.name, nearest=nearest)
    return list(compress(resource.units, map(requested.__contains__, known)))


def _nearest(unknown: str, known: list[str]) -> list[str]:
    """Return the ids with the longest common prefix, else the first ones."""

    def alike(identifier: str) -> int:
        pairs = zip(identifier, unknown, strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), len(identifier))

    return sorted(known, key=lambda identifier: -alike(identifier))[:_NEAREST]


def _replicas_env(resource: Resource) -> str:
    """Return the variable for the replicas of a resource.

    The kubelet gives a container one value of a variable, also if the answers for its resources
    differ: each resource has its own variable. Those of the first vendor share the plain one.
    """
    name = Vocabulary.replicas_env
    if resource.domain == vendors()[0].domain:
        return name
    return f"{name}_{re.sub('[^A-Z0-9]', '_', resource.name.upper())}"


def _require(
    resource: Resource, units: list[Unit], devices: Collection[str], context: Context
) -> None:
    """Raise the fault of a request that cannot be met; see allocate()."""
    if resource.refuses_more_than_one and len(units) > 1:
        raise fault("GH1852", resource=resource.name, count=len(units))
    if resource.sharing == MEMORY_UNITS and len(devices) > 1:
        raise memory_units.split(resource, len(units), devices)
    for unit in units if context.unhealthy else ():
        reason = context.unhealthy.get(unit.device.uuid)
        if reason:
            raise fault("GH1851", id=unit.id, resource=resource.name, reason=reason)
    if context.blocked:
        raise fault("GH1853", resource=resource.name, reason=context.blocked)
    if resource.sharing == MPS and resource.name not in context.mps:
        raise fault("GH1854", resource=resource.name)
    interposers.require(resource, devices, context.missing)


def merged(parts: Sequence[Allocation]) -> Allocation:
    """Return one allocation of all `parts`. The last value of a variable applies.

    Of several mounts or nodes with one path in the container, the first one applies.
    """
    envs: dict[str, str] = {}
    annotations: dict[str, str] = {}
    mounts: dict[str, AllocatedMount] = {}
    devices: dict[str, DeviceSpec] = {}
    names: dict[str, None] = {}
    for part in parts:
        envs |= part.envs
        annotations |= part.annotations
        for mount in part.mounts:
            mounts.setdefault(mount.container_path, mount)
        for device in part.devices:
            devices.setdefault(device.container_path, device)
        names |= dict.fromkeys(part.cdi_devices)
    return Allocation(
        envs=envs,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        annotations=annotations,
        cdi_devices=tuple(names),
    )


def _envvar(devices: tuple[Device, ...], context: Context) -> Allocation:
    envs = {context.words.devices_env: ",".join(_names(devices, context))}
    channels = _channels(context)
    return Allocation(envs=envs | ({IMEX_ENV: ",".join(channels)} if channels else {}))


def _volume_mounts(devices: tuple[Device, ...], context: Context) -> Allocation:
    directory = context.words.mount_prefix
    names = [*_names(devices, context), *(f"imex/{channel}" for channel in _channels(context))]
    return Allocation(
        envs={context.words.devices_env: directory},
        mounts=tuple(AllocatedMount(f"{directory}/{name}", "/dev/null") for name in names),
    )


def _cdi_annotations(devices: tuple[Device, ...], context: Context) -> Allocation:
    value = ",".join(_cdi_names(devices, context))
    # One container can have devices of two resources: each answer needs its own key.
    digest = crc32(value.encode())
    vendor = context.domain.partition(".")[0]
    key = f"{context.annotation_prefix}{vendor}-device-plugin_{digest:08x}"
    return Allocation(annotations={key: value})


def _cdi_cri(devices: tuple[Device, ...], context: Context) -> Allocation:
    return Allocation(cdi_devices=_cdi_names(devices, context))


def _host_files(devices: tuple[Device, ...], context: Context) -> Allocation:
    """Return all files and nodes of a GPU, for a runtime without GPU support."""
    mounts = tuple(mount for extra in context.extras for mount in extra.mounts)
    own = Allocation(mounts=mounts)
    return merged([context.host_files, own, _void(context), _nodes(devices, context)])


def _device_specs(devices: tuple[Device, ...], context: Context) -> Allocation:
    return merged([_void(context), _nodes(devices, context)])


def _void(context: Context) -> Allocation:
    """Return the devices' variable that requests nothing, unless another strategy sets it.

    An image may set it to `all`, which the node's runtime may read.
    """
    is_set = {"envvar", "volume-mounts"} & set(context.strategies)
    return Allocation(envs={} if is_set else {context.words.devices_env: "void"})


def _names(devices: tuple[Device, ...], context: Context) -> list[str]:
    is_index = context.id_strategy == "index"
    return [device.index if is_index else device.uuid for device in devices]


def _cdi_names(devices: tuple[Device, ...], context: Context) -> tuple[str, ...]:
    """Return the qualified names of devices and extras; raises GH1855 if no spec has a GPU."""
    vendor = plugin_vendor(context.domain)
    names = [f"{vendor}/gpu={device.uuid}" for device in devices]
    for name in names:
        if name not in context.cdi_names:
            raise fault("GH1855", name=name)
    extras = [f"{vendor}/{e.device_class}={n}" for e in context.extras for n in e.devices]
    return (*names, *(name for name in extras if name in context.cdi_names))


def _nodes(devices: tuple[Device, ...], context: Context) -> Allocation:
    """Return the control nodes, the nodes of the devices and those of the extras."""
    own = [
        DeviceSpec(path, host_path)
        for device in devices
        for path, host_path in zip(device.paths, device.host_paths, strict=True)
    ]
    extra = [node for one in context.extras for nodes in one.devices.values() for node in nodes]
    return merged([Allocation(devices=(*context.control_nodes, *own, *extra))])


_STRATEGIES: dict[str, Callable[[tuple[Device, ...], Context], Allocation]] = {
    "envvar": _envvar,
    "volume-mounts": _volume_mounts,
    "cdi-annotations": _cdi_annotations,
    "cdi-cri": _cdi_cri,
    "host-files": _host_files,
    "device-specs": _device_specs,
}


def _features(context: Context) -> Allocation:
    """Return the variables that request the extras from NVIDIA's runtime."""
    return Allocation(envs={extra.env: "enabled" for extra in context.extras if extra.env})


def _channels(context: Context) -> list[str]:
    return [n for extra in context.extras if extra.device_class == IMEX for n in extra.devices]
