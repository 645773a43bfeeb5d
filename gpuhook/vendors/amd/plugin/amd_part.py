# SPDX-License-Identifier: Apache-2.0
"""AMD's part of a snapshot of the device plugin: the GPUs, lost ones included, and their links.

A GPU or partition that vanishes without a change of the modes remains in the part, so that the
kubelet's list has it as unhealthy. After a change of the modes only the new partitions are offered.
"""

from __future__ import annotations

import os
from dataclasses import replace

from gpuhook.vendors.amd.hot.amd_words import KFD, VENDOR
from gpuhook.vendors.amd.inventory import amd_dump, amd_inventory, sysfs_inventory
from gpuhook.vendors.amd.inventory.amd_inventory import AmdNode
from gpuhook.vendors.vendor_part import PairScores, VendorPart

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu

# AMD's device plugin adds weights for each pair, of which the lowest sum is best. A pair without a
# link weighs nothing there, so that it looks best; here it weighs most.
_LINK_WEIGHTS = {amd_inventory.XGMI: 10, amd_inventory.PCIE: 40, amd_inventory.OTHER: 50}
_NO_LINK = 60
_SAME_GPU, _OTHER_GPU = 10, 20
_WORST = _NO_LINK + _OTHER_GPU
_UNLOADED = "the driver amdgpu is not loaded"
_GONE = "the driver amdgpu no longer has it"
_NO_PARTITION = "the partition has vanished"


def inventory(host_root: str, dev_root: str) -> AmdNode:
    """Return the inventory without warnings about device nodes that this process cannot see.

    A container of the plugin may have no /dev/dri: the kubelet needs the paths only.
    """
    node = sysfs_inventory.read(host_root, dev_root)
    dev = os.path.join(dev_root, "dev/")
    if os.path.isdir(dev + "dri"):
        return node
    return replace(node, warnings=tuple(one for one in node.warnings if not one.startswith(dev)))


def read(host_root: str, dev_root: str) -> VendorPart | None:
    """Return the part of a node, None without GPU and driver."""
    return _known(inventory(host_root, dev_root))


def dumped(name: str) -> VendorPart | None:
    """Return the part of the node in an inventory file or profile, None without one."""
    return _known(amd_dump.load(name))


def _known(node: AmdNode) -> VendorPart | None:
    return part(node) if node.gpus or node.driver is not None else None


def part(node: AmdNode, lost: Mapping[str, str] | None = None) -> VendorPart:
    """Return the part of an inventory, in which some devices may be `lost`."""
    missing = [gpu for gpu in node.gpus if gpu.trouble and not gpu.devices]
    warnings = [f"GPU {gpu.pci_address} is not offered: {gpu.trouble}" for gpu in missing]
    return VendorPart(
        domain=VENDOR,
        inventory=node,
        token=node.token,
        trouble=_UNLOADED if node.driver is None and node.gpus else "",
        is_whole=not lost and not any(gpu.trouble for gpu in node.gpus),
        links=links(node),
        control_nodes=(KFD,),
        device_nodes=node.device_nodes,
        lost=lost or {},
        warnings=(*node.warnings, *warnings),
    )


def with_lost(now: VendorPart | None, last: VendorPart) -> VendorPart:
    """Return the part with the devices that it lost since `last`."""
    node = AmdNode() if now is None else now.inventory
    before = last.inventory
    if not isinstance(node, AmdNode) or not isinstance(before, AmdNode):
        return last
    return part(*_with_lost(node, before))


def links(node: AmdNode) -> PairScores:
    """Return the scores of the pairs of devices, from their links and GPUs."""
    devices = list(node.devices())
    ids = {device.render_minor: device.id for _, device in devices}
    weights: dict[tuple[str, str], int] = {}
    for _, device in devices:
        for link in device.links:
            other = ids.get(link.render_minor)
            if other is not None and other != device.id:
                pair = _pair(device.id, other)
                weight = _LINK_WEIGHTS.get(link.type, _NO_LINK)
                weights[pair] = min(weights.get(pair, _NO_LINK), weight)
    scores = {pair: _WORST - _OTHER_GPU - weight for pair, weight in weights.items()}
    for gpu in node.gpus:
        for number, one in enumerate(gpu.devices):
            for second in gpu.devices[:number]:
                pair = _pair(one.id, second.id)
                scores[pair] = _WORST - _SAME_GPU - weights.get(pair, _NO_LINK)
    return PairScores(scores)


def _pair(one: str, other: str) -> tuple[str, str]:
    return min(one, other), max(one, other)


def _with_lost(now: AmdNode, last: AmdNode) -> tuple[AmdNode, dict[str, str]]:
    """Return (`now` with the GPUs and partitions that it lost since `last`, reasons by id)."""
    taken = {device.id for _, device in now.devices()}
    found = {gpu.pci_address: gpu for gpu in now.gpus}
    lost: dict[str, str] = {}
    for before in last.gpus:
        gpu = found.get(before.pci_address)
        reason = _reason(now, gpu)
        if gpu is not None and gpu.devices and _modes(gpu) != _modes(before):
            continue
        kept = () if gpu is None else gpu.devices
        numbers = {device.partition for device in kept}
        absent = [
            device  # and not one that has another id now, as after a reload of the driver
            for device in before.devices
            if device.id not in taken and device.partition not in numbers
        ]
        if absent:
            base = gpu if gpu is not None and kept else before  # a lost GPU has no modes
            found[before.pci_address] = replace(base, devices=_ordered((*kept, *absent)))
            lost.update((device.id, reason) for device in absent)
    gpus = sorted(found.values(), key=lambda gpu: gpu.index)
    return replace(now, gpus=tuple(gpus)), lost


def _reason(now: AmdNode, gpu: AmdGpu | None) -> str:
    if now.driver is None:
        return _UNLOADED
    return _GONE if gpu is None else gpu.trouble or _NO_PARTITION


def _modes(gpu: AmdGpu) -> tuple[str | None, str | None]:
    return gpu.compute_mode, gpu.memory_mode


def _ordered(devices: Iterable[AmdDevice]) -> tuple[AmdDevice, ...]:
    return tuple(sorted(devices, key=lambda device: device.partition))
