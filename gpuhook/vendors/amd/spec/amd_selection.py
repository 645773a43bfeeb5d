# SPDX-License-Identifier: Apache-2.0
"""The GPUs and partitions of a node that a CDI spec describes, and their names.

Index and `all` are the names of AMD's tool, and those that engines use for `--gpus`. The UUID names
a whole GPU: all of its partitions. The PCI address is the id of its first partition alone, as in
AMD's device plugin: a name for more would widen what the kubelet assigned.
"""

from __future__ import annotations

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode

    Pair: TypeAlias = tuple[AmdGpu, AmdDevice]

ALL = "all"
NO_DRIVER = "no amdgpu driver is loaded"
NO_GPU = "the amdgpu driver has no GPU"
NOT_IN_KFD = "the amdgpu driver has no GPU in KFD, which ROCm needs"


def chosen(node: AmdNode, ids: tuple[str, ...]) -> tuple[list[Pair], list[str]]:
    """Return (the devices that `ids` name, why others were left out); no ids means all devices.

    Raises GH1511 for an unknown id, GH1512 for a device that no container can get.
    """
    if node.driver is None:
        return [], [NO_DRIVER]
    usable, troubles = [], {}
    for gpu, device in node.devices():
        trouble = _trouble(node, gpu, device)
        if trouble:
            troubles[device.id] = trouble
        else:
            usable.append((gpu, device))
    if ids:
        return _named(node, usable, troubles, ids), []
    lost = [_left_out(gpu.pci_address, gpu.trouble) for gpu in node.gpus if not gpu.devices]
    left_out = [*lost, *(_left_out(name, trouble) for name, trouble in troubles.items())]
    return usable, left_out if node.gpus else [NO_GPU]


def _trouble(node: AmdNode, gpu: AmdGpu, device: AmdDevice) -> str:
    """Return why no container can get a device, "" if one can."""
    if gpu.trouble:
        return gpu.trouble
    has_node = any(one.path == device.render_path for one in node.device_nodes)
    return "" if has_node else f"{device.render_path} is missing"


def _left_out(name: str, trouble: str | None) -> str:
    return f"GPU {name} is omitted from the spec: {trouble or 'the driver gives it no device'}"


def _named(
    node: AmdNode, usable: list[Pair], troubles: dict[str, str], ids: tuple[str, ...]
) -> list[Pair]:
    known = names(node, list(node.devices()), with_all=False)
    known.update({gpu.pci_address: [] for gpu in node.gpus if not gpu.devices})
    wanted: set[str] = set()
    for name in ids:
        devices = known.get(name)
        if devices is None:
            have = ", ".join(str(device.index) for _, device in node.devices()) or "none"
            raise fault("GH1511", value=name, have=have)
        broken = next((troubles[one.id] for one in devices if one.id in troubles), "")
        if broken or not devices:
            raise fault("GH1512", value=name, reason=broken or "the driver gives it no device")
        wanted.update(one.id for one in devices)
    return [pair for pair in usable if pair[1].id in wanted]


def names(node: AmdNode, pairs: list[Pair], *, with_all: bool) -> dict[str, list[AmdDevice]]:
    """Return the devices `pairs` of `node` by all of their names.

    The UUID of a GPU is left out if `pairs` has only a part of it.
    """
    counts = {gpu.index: len(gpu.devices) for gpu in node.gpus}
    found = {str(device.index): [device] for _, device in pairs}
    for gpu, device in pairs:
        whole = [one for owner, one in pairs if owner.index == gpu.index]
        if gpu.uuid is not None and len(whole) == counts[gpu.index]:
            found[gpu.uuid] = whole
        found[f"{gpu.index}:{device.partition}"] = found[device.id] = [device]
    if with_all:
        found[ALL] = [device for _, device in pairs]
    return found
