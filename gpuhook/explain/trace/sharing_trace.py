# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container at its start, and the isolation of its GPUs."""

from __future__ import annotations

from typing import Any

from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.usage import container_sharing, usage_devices
from gpuhook.vendors.catalogue import vendor_of_node
from gpuhook.vendors.hot.memory_vendors import vendor_of
from gpuhook.vendors.usage.device_isolation import BY_NOBODY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpuhook.entry.create import Edited
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.usage.usage_device import UsageDevice

_AT_START = "a hook sets it before the first process runs, and reports an error if that fails"
_MAY_BE_SHARED = (
    "not reserved: this applies if other containers also get the device; alone,"
    " the container has all of it"
)


def limits(edited: Edited) -> list[dict[str, Any]]:
    """Return the limit of each GPU in bytes, None for none; `trouble` if none can be set."""
    return [
        {
            "gpu": record["device"],
            "limit": None if record["hard"] == NO_LIMIT else record["hard"],
            "guaranteed": record["soft"],
            "asked": record["asked"],
            "trouble": "" if _is_pending(record) else record["trouble"],
            "note": _AT_START if _is_pending(record) else "",
        }
        for record in edited.memory
    ]


def granted(found: Iterable[MemoryLimit]) -> list[dict[str, Any]]:
    """Return the limits that a device plugin grants on another node, as limits() does."""
    return [
        {
            "gpu": one.device,
            "limit": one.hard,
            "guaranteed": one.soft,
            "asked": one.is_asked,
            "trouble": "",
            "note": _AT_START,
        }
        for one in found
    ]


def isolated(
    spec: dict[str, Any],
    gpus: list[str],
    replicas: list[str],
    held: Iterable[dict[str, Any]],
    reserved: Collection[str],
    *,
    domains: Mapping[str, str],
    devices: Iterable[UsageDevice],
) -> list[dict[str, Any]]:
    """Return the sharing and the isolation of each GPU; `held` is limits().

    `reserved` are the GPUs that no other container can have at the same time. Other containers can
    request any other GPU, and then share it by time slicing. `domains` are those of
    the vendors of GPUs, `devices` those of the node.
    """
    holders = {gpu: 2 for gpu in gpus if gpu not in reserved}
    memory = [{**one, "by": _enforcer(one)} for one in held]
    profiles = {one.uuid: one.profile for one in devices if one.profile}
    found = container_sharing.sharing_of(
        spec, gpus, replicas, holders, memory, parts=profiles, domains=domains, profiles=profiles
    )
    certain = {*reserved, *(replica.partition("::")[0] for replica in replicas)}
    return [{**one, "note": "" if one["gpu"] in certain else _MAY_BE_SHARED} for one in found]


def exclusive(devices: Iterable[dict[str, Any]], target: ExplainedNode) -> dict[str, str]:
    """Return device_ids() of the devices in a trace that request.exclusiveDevices names."""
    chosen = target.context.settings.exclusive_devices
    nodes = {
        path
        for one in target.context.every()
        for name, paths in one.node.nodes_by_device().items()
        if chosen and ("all" in chosen or name in chosen)
        for path in paths
    }
    named = [{**one, "nodes": [path for path in one["nodes"] if path in nodes]} for one in devices]
    return device_ids([one for one in named if one["nodes"]], target)


def _enforcer(limit: dict[str, Any]) -> str:
    return BY_NOBODY if limit["trouble"] else vendor_of(limit["gpu"]).limited_by


def described(gpus: Iterable[str], target: ExplainedNode) -> list[dict[str, str | None]]:
    """Return the index and the model of the GPUs and instances, if known."""
    known = {one.uuid or one.index: one for one in target.devices}
    found: list[dict[str, str | None]] = []
    for gpu in gpus:
        one = known.get(gpu)
        model = one and " ".join(filter(None, (one.name, *_part(one))))
        found.append({"gpu": gpu, "index": one.index if one else None, "model": model or None})
    return found


def _part(one: UsageDevice) -> tuple[str, ...]:
    """Return the words for a part of a GPU: "MIG", "1g.5gb", or "CPX"."""
    is_instance = one.uuid.startswith("MIG-")
    return ("MIG", one.profile) if is_instance and one.profile else (one.profile,)


def device_ids(devices: Iterable[dict[str, Any]], target: ExplainedNode) -> dict[str, str]:
    """Return the id of each device in a trace, with the domain of its vendor.

    Without the facts of the node, the name in the CDI spec is the id.
    """
    split = {one.gpu for one in target.devices if ":" in one.index}
    by_node = {
        one.node: one.uuid or one.index
        for one in target.devices
        if one.node and one.uuid not in split
    }
    found: dict[str, str] = {}
    for one in devices:
        qualified = one["device"]
        node = target.node_of(qualified) if qualified else None
        if node is None or node.is_extra(qualified):
            continue
        known = [uuid for path, uuid in by_node.items() if path in one["nodes"]]
        known = known or _named(qualified.partition("=")[2], node, target)
        found.update(dict.fromkeys(known, vendor_of_node(node).domain))
    return found


def _named(name: str, node: VendorNode, target: ExplainedNode) -> list[str]:
    """Return the ids of a device without a node that is known."""
    if target.facts is None or node is not target.context.node:
        return [name]
    indices = {one.index: one.uuid for one in target.vendor.inventory_devices(target.facts)}
    return [] if name == "all" else [indices.get(name) or name]


def gpu_count(target: ExplainedNode) -> int | None:
    """Return the number of GPUs of all vendors, None if it is unknown."""
    is_known = target.facts is not None or bool(target.devices)
    return len({one.gpu or one.index for one in target.devices}) if is_known else None


def held_devices(answer: SimulatedAnswer, target: ExplainedNode) -> list[str]:
    """Return the GPUs and instances of a running container by UUID, else by device node."""
    if answer.held is None:
        return []
    by_node = usage_devices.by_node(target.devices)
    known = [by_node[path] for path in answer.held.nodes if path in by_node]
    return list(dict.fromkeys(known or answer.held.nodes))


def _is_pending(record: dict[str, Any]) -> bool:
    return not str(record["trouble"]).startswith("GH")
