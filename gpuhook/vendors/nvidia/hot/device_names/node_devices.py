# SPDX-License-Identifier: Apache-2.0
"""Names and nodes of this node's devices, from its CDI specs and node.json.

Loaded only for a create that needs them: its container names a GPU by a name other than the specs
have, has a memory limit, or names replicas.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.vendors.nvidia.hot import node_json, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.request.parse import Source
    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode


def alias(name: str, registry: Callable[[], Registry], kind: str) -> str | None:
    """Return the name in the node's specs of the GPU with another name, None if unknown.

    The name in node.json applies; without one, specs and kernel are searched.
    """
    recorded = node_json.alias(name)
    return recorded if recorded is not None else _derived(name, registry(), kind)


def _derived(name: str, found: Registry, kind: str) -> str | None:
    from gpuhook.vendors.nvidia.hot.device_names import (
        device_aliases,  # node.json exists nearly always
    )

    def nodes_of(device: str) -> list[str]:
        edits = found.device(f"{kind}={device}")[1]
        return [node["path"] for node in edits.get("deviceNodes") or ()]

    try:
        return device_aliases.alias(name, state.host_root(), found.names(kind), nodes_of)
    except GpuhookError:
        return None  # no spec of this kind, or two that contradict each other


def other_names() -> list[str]:
    """Return the names in node.json; without it the UUIDs that the kernel reports."""
    recorded = node_json.other_names()
    if recorded:
        return recorded
    from gpuhook.vendors.nvidia.hot.device_names import device_aliases

    return device_aliases.uuids(state.host_root())


def full_names(name: str, node: NvidiaNode) -> list[str]:
    """Return the full names of a short form, [] for another name; raises GH1060."""
    from gpuhook.vendors.nvidia.hot.device_names import short_names  # most names are full

    return short_names.full_names(
        name, lambda: [*node.other_names(), *_described(node.registry(), node.kind)]
    )


def refusal(
    name: str, error: GpuhookError, source: Source | None, node: NvidiaNode
) -> GpuhookError:
    """Return the fault of a requested name: GH1101 and GH1102 also name the source and the devices.

    GH1060 also names the source. Another fault is returned unchanged.
    """
    if error.code not in ("GH1060", "GH1101", "GH1102"):
        return error
    from gpuhook.cdi.hot import unknown_device
    from gpuhook.vendors.nvidia.hot.device_names import short_names

    described = _described(node.registry(), node.kind)
    where = source.where if source is not None and name in source.names else ""
    advice = short_names.advice(name, where, [*node.other_names(), *described])
    return unknown_device.requested(error, name, where, described, advice)


def _described(found: Registry, kind: str) -> list[str]:
    """Return the names of the devices of `kind`, [] without a spec of this kind."""
    try:
        return found.names(kind)
    except GpuhookError:
        return []


def nodes_by_device(found: Registry, kind: str) -> dict[str, frozenset[str]]:
    """Return the paths of the device nodes of each device of `kind`, by qualified name.

    Nodes that all devices of a spec share are skipped, and those for graphics, which a container
    gets by its capabilities.
    """
    nodes = {}
    for name in found.names(kind):
        if name == vocabulary.CSV_DEVICE:
            continue
        _, edits = found.device(f"{kind}={name}")
        nodes[f"{kind}={name}"] = _own_nodes(edits)
    return nodes


def covered(nodes: Collection[str], found: Registry, kind: str) -> frozenset[str]:
    """Return the names of the devices that have nodes, and all of them among `nodes`.

    The devices are those of the node's own specs, of `kind`, and of a device plugin's.
    """
    covering = set()
    for one in (kind, vocabulary.PLUGIN_KIND):
        try:
            named = [name for name in found.names(one) if name != vocabulary.CSV_DEVICE]
            described = [(name, found.device(f"{one}={name}")) for name in named]
        except GpuhookError:
            continue  # no spec of this kind, or two that contradict each other
        for name, (_, edits) in described:
            paths = _own_nodes(edits)
            if paths and paths.issubset(nodes):
                covering.add(name)
    return frozenset(covering)


def nvml(found: Registry, kind: str) -> str:
    """Return the host path of the NVML library that this node's specs mount, "" for none.

    A container's own mounts are ignored: a volume may have the name of a driver library.
    """
    for one in (kind, vocabulary.PLUGIN_KIND):
        try:
            specs = found.kind(one)
        except GpuhookError:
            continue  # there is none of this kind
        for spec in specs:
            for mount in spec.edits.get("mounts") or ():
                if vocabulary.is_nvml(mount["containerPath"]) and os.path.isfile(mount["hostPath"]):
                    return mount["hostPath"]
    return node_json.nvml()


def _own_nodes(edits: ContainerEdits) -> frozenset[str]:
    """Return the paths of the nodes that identify a device, without those for graphics."""
    paths = (node["path"] for node in edits.get("deviceNodes") or ())
    return frozenset(path for path in paths if not vocabulary.is_graphics_node(path))
