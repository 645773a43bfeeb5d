# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container at its start, and the isolation of its GPUs."""

from __future__ import annotations

from typing import Any

from gpuhook.request.memory_request import NO_LIMIT
from gpuhook.usage import container_sharing, usage_devices
from gpuhook.vendors.device_isolation import BY_NOBODY
from gpuhook.vendors.hot.memory_vendors import vendor_of
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.usage import nvidia_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from gpuhook.entry.create import Edited
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.simulate import SimulatedAnswer
    from gpuhook.request.memory_request import MemoryLimit
    from gpuhook.request.resolve import Grant
    from gpuhook.vendors.nvidia.inventory.inventory import Node
    from gpuhook.vendors.usage_device import UsageDevice

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
) -> list[dict[str, Any]]:
    """Return the sharing and the isolation of each GPU; `held` is limits().

    `reserved` are the GPUs that a device plugin has allocated to this container exclusively. Other
    containers can request any other GPU, and then share it by time slicing.
    """
    holders = {gpu: 2 for gpu in gpus if gpu not in reserved}
    memory = [{**one, "by": _enforcer(one)} for one in held]
    found = container_sharing.sharing_of(spec, gpus, replicas, holders, memory)
    certain = {*reserved, *(replica.partition("::")[0] for replica in replicas)}
    return [{**one, "note": "" if one["gpu"] in certain else _MAY_BE_SHARED} for one in found]


def _enforcer(limit: dict[str, Any]) -> str:
    return BY_NOBODY if limit["trouble"] else vendor_of(limit["gpu"]).limited_by


def in_mig_mode(named: Iterable[dict[str, Any]], node: Node | None) -> list[str]:
    """Return a note for each requested GPU in MIG mode."""
    divided = [gpu for gpu in node.gpus if gpu.instances] if node else []
    found = []
    for one in named:
        plain = str(one["name"]).rpartition("=")[2].partition("::")[0]
        for gpu in divided:
            if one["fault"] and plain in (str(gpu.index), gpu.uuid):
                names = ", ".join(f"{gpu.index}:{part.index}" for part in gpu.instances)
                found.append(
                    f"GPU {gpu.index} is in MIG mode: only its instances can be requested, {names}"
                )
    return found


def described(gpus: Iterable[str], target: ExplainedNode) -> list[dict[str, str | None]]:
    """Return the index and the model of the GPUs and instances, if known."""
    first = nvidia_devices.of_node(target.facts)
    known = {one.uuid or one.index: one for one in (*target.devices, *first)}
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


def gpus(grant: Grant, target: ExplainedNode) -> list[str]:
    """Return the first vendor's devices of a grant by UUID if the node is known, else by name."""
    nodes = {one["path"] for one in grant.edits.get("deviceNodes") or ()}
    found: dict[str, None] = {}
    own = [one for one in grant.devices if target.context.node.serves(one)]
    for qualified in (one for one in own if not vocabulary.is_extra(one)):
        name = qualified.partition("=")[2]
        found.update(dict.fromkeys(_named(name, target.facts, nodes)))
    return list(found)


def held_devices(answer: SimulatedAnswer, target: ExplainedNode) -> list[str]:
    """Return the GPUs and their parts of a running container by id, else by device node."""
    if answer.held is None:
        return []
    first = nvidia_devices.of_node(target.facts)
    by_node = usage_devices.by_node((*target.devices, *first))
    known = [by_node[path] for path in answer.held.nodes if path in by_node]
    return list(dict.fromkeys(known or answer.held.nodes))


def _named(name: str, node: Node | None, nodes: set[str]) -> list[str]:
    if node is None:
        return [name]
    if name != "all":
        by_name = {one.index: one.uuid for one in nvidia_devices.of_node(node)}
        return [by_name.get(name) or name]
    whole = [gpu for gpu in node.gpus if f"/dev/nvidia{gpu.minor}" in nodes]
    return [
        name
        for gpu in whole
        for name in ([one.uuid for one in gpu.instances] or [gpu.uuid or str(gpu.index)])
    ]


def _is_pending(record: dict[str, Any]) -> bool:
    return not str(record["trouble"]).startswith("GH")
