# SPDX-License-Identifier: Apache-2.0
"""The devices of a node, each under the name of the resource that it belongs to before sharing.

A GPU in MIG mode is never given as a whole: CUDA then sees one of its instances, or nothing. So
MIG strategy none leaves such a GPU out, single and mixed offer its instances.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace

from gpuhook.device_plugin.config.configuration import Naming
from gpuhook.device_plugin.offer import device_selectors
from gpuhook.device_plugin.offer.offered_devices import Device
from gpuhook.errors import fault
from gpuhook.vendors.nvidia.spec.device_selection import is_divided, node_paths

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
    """A device, the resource that it belongs to, and the keys of all of its names."""

    resource: str
    device: Device
    names: frozenset[str]


def resource_devices(
    node: Node, configuration: Configuration
) -> tuple[tuple[NamedDevice, ...], tuple[str, ...]]:
    """Return (the devices of `node` by index, warnings about those that are left out).

    Raises GH1840 where MIG strategy single meets GPUs that are not alike.
    """
    gpus, unknown = included(node.gpus, configuration.own.exclude_devices)
    warnings = [f"gpuhook.excludeDevices: no device of this node is {name!r}" for name in unknown]
    gpus = [gpu for gpu in gpus if _has_uuid(gpu, warnings)]
    strategy = configuration.flags.mig_strategy
    if strategy == "single":
        gpus = _alike(gpus, warnings)
    nodes = {device.path: device.host_path for device in node.device_nodes}
    placed: dict[str, NamedDevice] = {}
    for gpu in gpus:
        for named in _named(gpu, configuration, strategy, warnings):
            if named.device.uuid in placed:
                warnings.append(f"{named.device.uuid} names two devices: the first one is offered")
                continue
            host_paths = tuple(
                nodes.get(path) or os.path.join(node.dev_root, path.lstrip("/"))
                for path in named.device.paths
            )
            device = replace(named.device, host_paths=host_paths)
            placed[device.uuid] = replace(named, device=device)
    return tuple(placed.values()), tuple(warnings)


def included(gpus: tuple[Gpu, ...], excluded: tuple[str, ...]) -> tuple[list[Gpu], tuple[str, ...]]:
    """Return (the GPUs with the instances that no name in `excluded` means, names of nothing).

    The GPUs are by index; one of which all instances are excluded is so itself.
    """
    ordered = sorted(gpus, key=lambda gpu: gpu.index)
    keys = {device_selectors.key(name): name for name in excluded}
    known: set[str] = set()
    kept = []
    for gpu in ordered:
        names = device_selectors.of_gpu(gpu)
        parts = {part: device_selectors.of_instance(gpu, part) for part in gpu.instances}
        known.update(names, *parts.values())
        instances = tuple(part for part, own in parts.items() if keys.keys().isdisjoint(own))
        if keys.keys().isdisjoint(names) and (instances or not parts):
            kept.append(replace(gpu, instances=instances))
    return kept, tuple(name for own, name in keys.items() if own not in known)


def _has_uuid(gpu: Gpu, warnings: list[str]) -> bool:
    if not gpu.uuid:
        reason = f" ({gpu.lost})" if gpu.lost else ""
        warnings.append(f"GPU {gpu.index} has no UUID{reason}: it is not offered")
    return bool(gpu.uuid)


def _alike(gpus: list[Gpu], warnings: list[str]) -> list[Gpu]:
    """Return the GPUs that MIG strategy single can offer together. Raises GH1840."""
    told = [gpu for gpu in gpus if gpu.lost is None or gpu.mig_mode is not None]
    divided = [gpu for gpu in told if is_divided(gpu)]
    if not divided:
        return gpus
    whole = [gpu for gpu in told if not is_divided(gpu)]
    if whole:
        reason = f"MIG mode is on for {_listed(divided)}, off for {_listed(whole)}"
        raise fault("GH1840", reason=reason)
    empty = [gpu for gpu in divided if not gpu.instances and gpu.lost is None]
    if empty:
        raise fault("GH1840", reason=f"{_listed(empty)} is in MIG mode, but has no instance")
    shapes: dict[str, str] = {}
    for gpu in divided:
        for instance in gpu.instances:
            shapes.setdefault(_shape(instance), f"{gpu.index}:{instance.index}")
    if len(shapes) > 1:
        shown = ", ".join(f"{index} is {shape}" for shape, index in shapes.items())
        raise fault("GH1840", reason=f"the instances have several profiles: {shown}")
    warnings += [
        f"GPU {gpu.index} is lost and its MIG mode unknown: it is not offered"
        for gpu in gpus
        if gpu not in told
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
            yield NamedDevice(name, device, device_selectors.of_gpu(gpu))
    elif strategy == "none":
        warnings.append(
            f"GPU {gpu.index} is in MIG mode and cannot be given as a whole: it is not offered "
            "with migStrategy none; choose single or mixed, or turn its MIG mode off"
        )
    elif not gpu.instances:
        warnings.append(f"GPU {gpu.index} is in MIG mode and has no instances: it offers nothing")
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
            yield NamedDevice(
                name, _part(gpu, instance), device_selectors.of_instance(gpu, instance)
            )
        elif patterns:
            warnings.append(
                f"{where} ({profile or 'unknown profile'}) is not offered: no pattern of "
                "resources.mig matches"
            )
        else:
            warnings.append(f"{where} is of an unknown profile: it is not offered")


def _by_profile(profile: str) -> str | None:
    """Return the resource of a profile, mig-1g.10gb.me for "1g.10gb+me"; None for no profile."""
    fitting = _UNFIT.sub("-", profile.replace("+", "."))
    return f"{PREFIX}mig-{fitting}" if fitting else None


def _first(namings: Iterable[Naming], text: str) -> str | None:
    return next((naming.name for naming in namings if _matches(naming.pattern, text)), None)


def _matches(pattern: str, text: str) -> bool:
    """Return whether all of `text` fits `pattern`, in which only "*" is not itself."""
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
