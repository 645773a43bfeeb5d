# SPDX-License-Identifier: Apache-2.0
"""The NVIDIA devices of a node, each with the name of its resource before sharing.

A GPU in MIG mode is never assigned as a whole: CUDA then sees one of its instances, or nothing. MIG
strategy none therefore omits such a GPU; single and mixed offer its instances.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace

from gpuhook.errors import fault
from gpuhook.vendors.nvidia.spec.device_selection import (
    instance_trouble,
    is_divided,
    node_paths,
    trouble,
)
from gpuhook.vendors.plugin.vendor_device import (
    Device,
    NamedDevice,
    NamedDevices,
    first_match,
    selector_key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node
    from gpuhook.vendors.plugin.vendor_device import NamingRules

PREFIX = "nvidia.com/"
_GPU = (("*", PREFIX + "gpu"),)
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


def named_devices(node: Node, rules: NamingRules) -> NamedDevices:
    """Return the devices of `node` by index; `rules.strategy` is the MIG strategy.

    Raises GH1840 if MIG strategy single cannot offer the GPUs together.
    """
    gpus, unknown = included(node.gpus, rules.excluded)
    warnings: list[str] = []
    gpus = [gpu for gpu in gpus if _has_uuid(gpu, warnings)]
    if rules.strategy == "single":
        gpus = _alike(gpus, warnings)
    nodes = {device.path: device.host_path for device in node.device_nodes}
    placed: dict[str, NamedDevice] = {}
    for gpu in gpus:
        for named in _named(gpu, rules, warnings):
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
    return NamedDevices(tuple(placed.values()), tuple(warnings), unknown)


def unusable(node: Node) -> dict[str, str]:
    """Return the reason for each device that no container can get, by its UUID.

    The reason of a GPU is also one of its instances.
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


def _named(gpu: Gpu, rules: NamingRules, warnings: list[str]) -> Iterator[NamedDevice]:
    if not is_divided(gpu):
        device = _whole(gpu)
        name = first_match(rules.models or _GPU, gpu.name or "")
        if name is None:
            model = gpu.name or "an unknown model"
            warnings.append(
                f"GPU {gpu.index} ({model}) is not offered: no pattern of resources.gpus matches"
            )
        else:
            yield NamedDevice(name, device, _gpu_names(gpu))
    elif rules.strategy == "none":
        warnings.append(
            f"GPU {gpu.index} is in MIG mode and cannot be assigned as a whole: it is not "
            "offered with migStrategy none; set single or mixed, or disable its MIG mode"
        )
    elif not gpu.instances:
        warnings.append(f"GPU {gpu.index} is in MIG mode and has no instances: it is not offered")
    else:
        patterns = rules.profiles or (_GPU if rules.strategy == "single" else ())
        yield from _instances(gpu, patterns, warnings)


def _instances(
    gpu: Gpu, patterns: tuple[tuple[str, str], ...], warnings: list[str]
) -> Iterator[NamedDevice]:
    for instance in sorted(gpu.instances, key=lambda instance: instance.index):
        where = f"MIG instance {gpu.index}:{instance.index}"
        profile = instance.profile or ""
        if not instance.uuid:
            warnings.append(f"{where} has no UUID: it is not offered")
            continue
        name = first_match(patterns, profile) if patterns else _by_profile(profile)
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
