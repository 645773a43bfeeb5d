# SPDX-License-Identifier: Apache-2.0
"""The devices of a node, each with the name of its resource before sharing.

A GPU in MIG mode is never assigned as a whole: CUDA then sees one of its instances, or nothing. MIG
strategy none therefore omits such a GPU; single and mixed offer its instances.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from gpuhook.device_plugin.config.configuration import Naming
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.spec.device_selection import bus_id, is_divided, node_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

PREFIX = "nvidia.com/"
_SINGLE = (Naming("*", PREFIX + "gpu"),)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class NamedDevice:
    """A device, the name of its resource, and the keys of its names."""

    resource: str
    device: Device
    names: frozenset[str]


def resource_devices(
    node: Node, configuration: Configuration
) -> tuple[tuple[NamedDevice, ...], tuple[str, ...]]:
    """Return (the devices of `node` by index, warnings about omitted devices).

    Raises GH1840 if MIG strategy single cannot offer the GPUs together.
    """
    gpus, unknown = included(node.gpus, configuration.own.exclude_devices)
    warnings = [f"gpuhook.excludeDevices: this node has no device {name!r}" for name in unknown]
    gpus = [gpu for gpu in gpus if _has_uuid(gpu, warnings)]
    strategy = configuration.flags.mig_strategy
    if strategy == "single":
        gpus = _alike(gpus, warnings)
    nodes = {device.path: device.host_path for device in node.device_nodes}
    placed: dict[str, NamedDevice] = {}
    for gpu in gpus:
        for named in _named(gpu, configuration, strategy, warnings):
            if named.device.uuid in placed:
                warnings.append(
                    f"{named.device.uuid} identifies two devices: the first one is offered"
                )
                continue
            host_paths = tuple(
                nodes.get(path) or os.path.join(node.dev_root, path.lstrip("/"))
                for path in named.device.paths
            )
            device = replace(named.device, host_paths=host_paths)
            placed[device.uuid] = replace(named, device=device)
    return tuple(placed.values()), tuple(warnings)


def included(gpus: tuple[Gpu, ...], excluded: tuple[str, ...]) -> tuple[list[Gpu], tuple[str, ...]]:
    """Return (the GPUs and instances that `excluded` does not select, names of no device).

    The GPUs are sorted by index. A GPU is excluded if all of its instances are.
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    keys = {selector_key(name): name for name in excluded}
    known: set[str] = set()
    left = []
    for gpu in ordered:
        names = _gpu_names(gpu)
        parts = {part: _instance_names(gpu, part) for part in gpu.instances}
        known.update(names, *parts.values())
        instances = tuple(part for part, own in parts.items() if keys.keys().isdisjoint(own))
        if keys.keys().isdisjoint(names) and (instances or not parts):
            left.append(replace(gpu, instances=instances))
    return left, tuple(name for own, name in keys.items() if own not in known)


def selector_key(name: str) -> str:
    """Return the form of a device name in which names are compared.

    Upper and lower case are equal, a PCI bus id can have any length, and a model can have the form
    of the label nvidia.com/gpu.product: Tesla-T4 for "Tesla T4".
    """
    return bus_id(name.strip()) or "-".join(name.lower().split())


def _gpu_names(gpu: Gpu) -> frozenset[str]:
    names = (str(gpu.index), gpu.uuid, gpu.pci_bus_id, gpu.name)
    return frozenset(selector_key(name) for name in names if name)


def _instance_names(gpu: Gpu, instance: MigInstance) -> frozenset[str]:
    """Return the keys of an instance's names, including those of its GPU: they select all of it."""
    own = (f"{gpu.index}:{instance.index}", instance.uuid)
    return _gpu_names(gpu) | {selector_key(name) for name in own if name}


def _has_uuid(gpu: Gpu, warnings: list[str]) -> bool:
    if not gpu.uuid:
        reason = f" ({gpu.lost})" if gpu.lost else ""
        warnings.append(f"GPU {gpu.index} has no UUID{reason}: it is not offered")
    return bool(gpu.uuid)


def _alike(gpus: list[Gpu], warnings: list[str]) -> list[Gpu]:
    """Return the GPUs that MIG strategy single can offer together; raises GH1840."""
    known = [gpu for gpu in gpus if gpu.lost is None or gpu.mig_mode is not None]
    divided = [gpu for gpu in known if is_divided(gpu)]
    if not divided:
        return gpus
    whole = [gpu for gpu in known if not is_divided(gpu)]
    if whole:
        reason = f"MIG mode is on for {_listed(divided)} and off for {_listed(whole)}"
        raise fault("GH1840", reason=reason)
    empty = [gpu for gpu in divided if not gpu.instances and gpu.lost is None]
    if empty:
        raise fault("GH1840", reason=f"{_listed(empty)} is in MIG mode, but has no instances")
    shapes: dict[str, str] = {}
    for gpu in divided:
        for instance in gpu.instances:
            shapes.setdefault(_shape(instance), f"{gpu.index}:{instance.index}")
    if len(shapes) > 1:
        shown = ", ".join(f"{index} is {shape}" for shape, index in shapes.items())
        raise fault("GH1840", reason=f"the instances have different profiles: {shown}")
    warnings += [
        f"GPU {gpu.index} is lost and its MIG mode is unknown: it is not offered"
        for gpu in gpus
        if gpu not in known
    ]
    return divided


def _shape(instance: MigInstance) -> str:
    size = f"{instance.compute_slices} slices, {instance.memory_bytes} bytes"
    return instance.profile or f"of an unknown profile ({size})"


def _listed(gpus: list[Gpu]) -> str:
    return "GPU " + ", ".join(str(gpu.index) for gpu in gpus)


def _named(
    gpu: Gpu, configuration: Configuration, strategy: str, warnings: list[str]
) -> Iterator[NamedDevice]:
    if not is_divided(gpu):
        device = _whole(gpu)
        name = _first(configuration.gpus, gpu.name or "")
        if name is None:
            model = gpu.name or "an unknown model"
            warnings.append(
                f"GPU {gpu.index} ({model}) is not offered: no pattern of resources.gpus matches"
            )
        else:
            yield NamedDevice(name, device, _gpu_names(gpu))
    elif strategy == "none":
        warnings.append(
            f"GPU {gpu.index} is in MIG mode and cannot be assigned as a whole: it is not "
            "offered with migStrategy none; set single or mixed, or disable its MIG mode"
        )
    elif not gpu.instances:
        warnings.append(f"GPU {gpu.index} is in MIG mode and has no instances: it is not offered")
    else:
        patterns = configuration.mig or (_SINGLE if strategy == "single" else ())
        yield from _instances(gpu, patterns, warnings)


def _instances(
    gpu: Gpu, patterns: tuple[Naming, ...], warnings: list[str]
) -> Iterator[NamedDevice]:
    for instance in sorted(gpu.instances, key=lambda instance: instance.index):
        where = f"MIG instance {gpu.index}:{instance.index}"
        profile = instance.profile or ""
        if not instance.uuid:
            warnings.append(f"{where} has no UUID: it is not offered")
            continue
        name = _first(patterns, profile) if patterns else _by_profile(profile)
        if name is not None:
            yield NamedDevice(name, _part(gpu, instance), _instance_names(gpu, instance))
        elif patterns:
            warnings.append(
                f"{where} ({profile or 'unknown profile'}) is not offered: no pattern of "
                "resources.mig matches"
            )
        else:
            warnings.append(f"{where} has an unknown profile: it is not offered")


def _by_profile(profile: str) -> str | None:
    """Return the resource name of a profile, mig-1g.10gb.me for "1g.10gb+me"."""
    fitting = _UNFIT.sub("-", profile.replace("+", "."))
    return f"{PREFIX}mig-{fitting}" if fitting else None


def _first(namings: Iterable[Naming], text: str) -> str | None:
    return next((naming.name for naming in namings if _matches(naming.pattern, text)), None)


def _matches(pattern: str, text: str) -> bool:
    """Return whether `pattern` matches all of `text`; "*" is its only wildcard."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None


def _whole(gpu: Gpu) -> Device:
    uuid = gpu.uuid or ""
    return Device(
        uuid=uuid,
        index=str(gpu.index),
        gpu=uuid,
        gpu_index=gpu.index,
        paths=() if gpu.minor is None else tuple(node_paths(gpu)),
        host_paths=(),
        model=gpu.name,
        memory_bytes=gpu.memory_bytes,
        numa_node=gpu.numa_node,
        compute_capability=gpu.compute_capability,
    )


def _part(gpu: Gpu, instance: MigInstance) -> Device:
    return replace(
        _whole(gpu),
        uuid=instance.uuid,
        index=f"{gpu.index}:{instance.index}",
        paths=() if gpu.minor is None else tuple(node_paths(gpu, instance)),
        memory_bytes=instance.memory_bytes,
        profile=instance.profile,
        instance=(instance.gpu_instance, instance.compute_instance),
    )
