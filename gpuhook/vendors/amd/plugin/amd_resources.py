# SPDX-License-Identifier: Apache-2.0
"""The AMD devices of a node, each with the name of its resource before sharing.

The names are those of AMD's device plugin. Strategy single: amd.com/gpu for GPUs or partitions, all
alike. Strategy mixed: amd.com/cpx_nps4 and so on by the modes of the GPU, and amd.com/gpu for a GPU
without partition modes, which AMD's plugin omits if another GPU of the node has modes.
"""

from __future__ import annotations

from gpuhook.errors import fault
from gpuhook.vendors.amd.hot.amd_words import KIND, VENDOR
from gpuhook.vendors.amd.system import cu_mask
from gpuhook.vendors.plugin.vendor_device import (
    Device,
    NamedDevice,
    NamedDevices,
    first_match,
    selector_key,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode
    from gpuhook.vendors.plugin.vendor_device import NamingRules


def named_devices(node: AmdNode, rules: NamingRules) -> NamedDevices:
    """Return the devices of `node` by index; `rules.strategy` is "single", "mixed" or "none".

    Raises GH2530 if strategy single cannot offer the devices together.
    """
    if rules.strategy == "none":
        return NamedDevices(unknown=rules.excluded)
    keys = {selector_key(name): name for name in rules.excluded}
    known: set[str] = set()
    named: list[NamedDevice] = []
    warnings: list[str] = []
    alike: dict[str, str] = {}  # an index by the shape of its device
    for gpu, device in node.devices():
        names = _names(gpu, device)
        known |= names
        if not keys.keys().isdisjoint(names):
            continue
        resource = _resource(gpu, rules)
        if resource is None:
            kind = "mig" if gpu.is_divided else "gpus"
            what = profile(gpu) if gpu.is_divided else gpu.name or "an unknown model"
            warnings.append(
                f"GPU {device.index} ({what}) is not offered: no pattern of resources.{kind} "
                "matches"
            )
            continue
        if resource == KIND and rules.strategy == "single" and gpu.trouble is None:
            alike.setdefault(_shape(gpu), str(device.index))
        named.append(NamedDevice(resource, neutral_device(gpu, device), names))
    if len(alike) > 1:
        shown = ", ".join(f"GPU {index} is {shape}" for shape, index in alike.items())
        raise fault("GH2530", reason=shown)
    unknown = tuple(name for key, name in keys.items() if key not in known)
    return NamedDevices(tuple(named), tuple(warnings), unknown)


def unusable(node: AmdNode) -> dict[str, str]:
    """Return the reason for each device that no container can get, by its id."""
    return {device.id: gpu.trouble for gpu, device in node.devices() if gpu.trouble}


def profile(gpu: AmdGpu) -> str | None:
    """Return the modes of a GPU as resources name them, "cpx_nps4"; None for a GPU without."""
    modes = filter(None, (gpu.compute_mode, gpu.memory_mode))
    return "_".join(modes).lower() if gpu.compute_mode else None


def neutral_device(gpu: AmdGpu, device: AmdDevice) -> Device:
    """Return a device in the terms of the device plugin."""
    paths = (device.card_path, device.render_path)
    nodes = tuple(path for path in paths if path is not None)
    memory = device.memory_bytes
    if memory is None and gpu.vram_bytes is not None:
        memory = gpu.vram_bytes // max(len(gpu.devices), 1)
    return Device(
        uuid=device.id,
        index=str(device.index),
        gpu=gpu.pci_address,
        gpu_index=gpu.index,
        paths=nodes,
        host_paths=nodes,
        model=gpu.name,
        memory_bytes=memory,
        numa_node=gpu.numa_node,
        profile=profile(gpu) if gpu.is_divided else None,
        domain=VENDOR,
        compute=_compute(device),
    )


def _compute(device: AmdDevice) -> tuple[int, int] | None:
    group = cu_mask.cu_group(device.gfx, device.xcc_count, device.engine_count)
    return (device.cu_count, group) if device.cu_count and group else None


def _resource(gpu: AmdGpu, rules: NamingRules) -> str | None:
    modes = profile(gpu)
    own = f"{VENDOR}/{modes}" if modes and rules.strategy == "mixed" else KIND
    patterns, text = rules.models, gpu.name or ""
    if gpu.is_divided:
        patterns, text = rules.profiles, modes or ""
    return first_match(patterns, text) if patterns else own


def _shape(gpu: AmdGpu) -> str:
    return profile(gpu) or "" if gpu.is_divided else "whole"


def _names(gpu: AmdGpu, device: AmdDevice) -> frozenset[str]:
    """Return the keys of a device's names, including those of its GPU: they select all of it."""
    names = (
        str(device.index),
        f"{gpu.index}:{device.partition}",
        device.id,
        gpu.pci_address,
        gpu.uuid,
        gpu.name,
    )
    return frozenset(selector_key(name) for name in names if name)
