# SPDX-License-Identifier: Apache-2.0
"""What one container is handed for the units that the kubelet has chosen for it.

Pure. The strategies say by which words: a variable, mounts, CDI names, or device nodes and the
driver's files themselves. Units are put in the order of their resource, as the kubelet's order is
that of a set: the same units give the same answer.

CDI names have UUIDs whatever the id strategy is: the kubelet keeps an answer for the restarts of
its container, and an index may be another GPU's by then.
"""

from __future__ import annotations

from binascii import crc32
from collections import Counter
from itertools import compress
from operator import attrgetter

from gpuhook.device_plugin.allocate import interposers, memory_grants
from gpuhook.device_plugin.allocate.allocation_context import CDI_STRATEGIES
from gpuhook.device_plugin.allocate.auxiliary_devices import IMEX
from gpuhook.device_plugin.allocate.container_allocation import (
    AllocatedMount,
    Allocation,
    DeviceSpec,
)
from gpuhook.device_plugin.config.sharing_section import MEMORY_UNITS, MPS
from gpuhook.device_plugin.offer import memory_units
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from gpuhook.device_plugin.allocate.allocation_context import Context
    from gpuhook.device_plugin.offer.offered_devices import Device, Resource, Unit

IMEX_ENV = "NVIDIA_IMEX_CHANNELS"
_ANNOTATION = "nvidia-device-plugin_"
_NEAREST = 3
_UUID = attrgetter("device.uuid")  # of a unit's device


def allocate(resource: Resource, ids: Sequence[str], context: Context) -> Allocation:
    """Return what one container gets for the units `ids` of `resource`; none means no GPU.

    An id that is there twice counts once. Raises GH1850 for an id that the resource has not got,
    GH1851 for one that is unhealthy, GH1852 for more than one where the configuration forbids
    that, GH1853 where no strategy is at work, GH1854 where MPS is to share and is not there, GH1859
    for memory units of several devices, GH1836 to GH1839 for interposers.
    """
    units = chosen(resource, ids)
    if not units:
        return Allocation(envs={VOCABULARY.devices_env: "void"})
    counts = Counter(map(_UUID, units))
    _require(resource, units, counts, context)
    devices = tuple(device for device in resource.devices if device.uuid in counts)
    parts = [_STRATEGIES[name](devices, context) for name in context.strategies]
    parts.append(_features(context))
    if context.pass_device_specs and not set(context.strategies) <= set(CDI_STRATEGIES):
        parts.append(_nodes(devices, context))
    if resource.sharing == MPS:
        parts.append(context.mps[resource.name])
    parts.append(memory_grants.granted(resource, counts))
    # Of memory units there are thousands, and their grant says all.
    named = () if resource.sharing == MEMORY_UNITS else units
    held = [unit.id for unit in named if unit.replica is not None]
    if held:
        parts.append(Allocation(envs={VOCABULARY.replicas_env: ",".join(held)}))
    parts.append(memory_grants.hinted(resource, counts))
    # First, as the variables that say what is granted are not an interposer's to change.
    return merged([interposers.interposer_edits(resource, counts, context.interposers), *parts])


def chosen(resource: Resource, ids: Iterable[str]) -> list[Unit]:
    """Return the units `ids`, each once, in the resource's order; GH1850 for one it has not got."""
    asked = dict.fromkeys(ids)
    known = resource.index.positions
    if not known.keys() >= asked.keys():
        unknown = next(identifier for identifier in asked if identifier not in known)
        nearest = ", ".join(_nearest(unknown, list(known))) or "none"
        raise fault("GH1850", id=unknown, resource=resource.name, nearest=nearest)
    return list(compress(resource.units, map(asked.__contains__, known)))


def _nearest(unknown: str, known: list[str]) -> list[str]:
    """Return the ids that begin most like `unknown`, the first ones where none does."""

    def alike(identifier: str) -> int:
        pairs = zip(identifier, unknown, strict=False)
        return next((n for n, (a, b) in enumerate(pairs) if a != b), len(identifier))

    return sorted(known, key=lambda identifier: -alike(identifier))[:_NEAREST]


def _require(
    resource: Resource, units: list[Unit], devices: Collection[str], context: Context
) -> None:
    """Raise the fault of a request that cannot be met, as allocate() says."""
    if resource.refuses_more_than_one and len(units) > 1:
        raise fault("GH1852", resource=resource.name, count=len(units))
    if resource.sharing == MEMORY_UNITS and len(devices) > 1:
        raise memory_units.split(resource, len(units), devices)
    for unit in units if context.unhealthy else ():
        reason = context.unhealthy.get(unit.id) or context.unhealthy.get(unit.device.uuid)
        if reason:
            raise fault("GH1851", id=unit.id, resource=resource.name, reason=reason)
    if context.blocked:
        raise fault("GH1853", resource=resource.name, reason=context.blocked)
    if resource.sharing == MPS and resource.name not in context.mps:
        raise fault("GH1854", resource=resource.name)
    interposers.require(resource, devices, context.missing)


def merged(parts: Sequence[Allocation]) -> Allocation:
    """Return one allocation of all `parts`: of two values of a variable the later one counts.

    A path of the container is mounted, and a node made, once: the first one says by what.
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
    envs = {VOCABULARY.devices_env: ",".join(_names(devices, context))}
    channels = _channels(context)
    return Allocation(envs=envs | ({IMEX_ENV: ",".join(channels)} if channels else {}))


def _volume_mounts(devices: tuple[Device, ...], context: Context) -> Allocation:
    directory = VOCABULARY.mount_prefix
    names = [*_names(devices, context), *(f"imex/{channel}" for channel in _channels(context))]
    return Allocation(
        envs={VOCABULARY.devices_env: directory},
        mounts=tuple(AllocatedMount(f"{directory}/{name}", "/dev/null") for name in names),
    )


def _cdi_annotations(devices: tuple[Device, ...], context: Context) -> Allocation:
    value = ",".join(_cdi_names(devices, context))
    # One container may have devices of two resources: each answer has a key of its own.
    digest = crc32(value.encode())
    return Allocation(annotations={f"{context.annotation_prefix}{_ANNOTATION}{digest:08x}": value})


def _cdi_cri(devices: tuple[Device, ...], context: Context) -> Allocation:
    return Allocation(cdi_devices=_cdi_names(devices, context))


def _host_files(devices: tuple[Device, ...], context: Context) -> Allocation:
    """Return all that a GPU needs of a runtime that knows nothing of GPUs.

    Where no other strategy sets it, the devices' variable says `void`: a CUDA image says `all` in
    it, and the node's runtime may be one that listens to that.
    """
    void = {VOCABULARY.devices_env: "void"}
    told = {"envvar", "volume-mounts"} & set(context.strategies)
    mounts = tuple(mount for extra in context.extras for mount in extra.mounts)
    own = Allocation(envs={} if told else void, mounts=mounts)
    return merged([context.host_files, own, _nodes(devices, context)])


_STRATEGIES: dict[str, Callable[[tuple[Device, ...], Context], Allocation]] = {
    "envvar": _envvar,
    "volume-mounts": _volume_mounts,
    "cdi-annotations": _cdi_annotations,
    "cdi-cri": _cdi_cri,
    "host-files": _host_files,
}


def _names(devices: tuple[Device, ...], context: Context) -> list[str]:
    is_index = context.id_strategy == "index"
    return [device.index if is_index else device.uuid for device in devices]


def _cdi_names(devices: tuple[Device, ...], context: Context) -> tuple[str, ...]:
    """Return the qualified names of the devices and extras; GH1855 if a GPU is in no spec."""
    names = [f"{context.vendor}/gpu={device.uuid}" for device in devices]
    for name in names:
        if name not in context.cdi_names:
            raise fault("GH1855", name=name)
    extras = [f"{context.vendor}/{e.device_class}={n}" for e in context.extras for n in e.devices]
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


def _features(context: Context) -> Allocation:
    """Return the variables by which NVIDIA's runtime is told of the extras."""
    return Allocation(envs={extra.env: "enabled" for extra in context.extras if extra.env})


def _channels(context: Context) -> list[str]:
    return [n for extra in context.extras if extra.device_class == IMEX for n in extra.devices]
