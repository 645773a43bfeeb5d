# SPDX-License-Identifier: Apache-2.0
"""The memory limits of a container that is to start, and what of its GPUs is isolated."""

from __future__ import annotations

from typing import Any

from gpuhook.diagnose import sharing
from gpuhook.grant.memory import NO_LIMIT
from gpuhook.vendors.nvidia import isolation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.grant.resolve import Grant
    from gpuhook.programs.create import Edited
    from gpuhook.vendors.nvidia.inventory import Node

_AT_START = "set by a hook before its first process runs; where the driver cannot, it says so then"
_MAY_BE_SHARED = (
    "nothing keeps others from being given it too, and this is how it is then; alone on it, the"
    " container has all of it"
)


def limits(edited: Edited) -> list[dict[str, Any]]:
    """Return the limit of each GPU: bytes, None for none; `trouble` where none will be set."""
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


def isolated(
    spec: dict[str, Any],
    gpus: list[str],
    replicas: list[str],
    held: Iterable[dict[str, Any]],
    *,
    is_pod: bool,
) -> list[dict[str, Any]]:
    """Return how each of the GPUs is shared and the four answers; `held` is limits().

    A device plugin gives a whole GPU to one container alone. Elsewhere anybody may ask for the same
    one, and then they share it in turns.
    """
    holders = {} if is_pod else dict.fromkeys(gpus, 2)
    told = [
        {**one, "by": isolation.BY_NOBODY if one["trouble"] else isolation.BY_DRIVER}
        for one in held
    ]
    found = sharing.of_spec({"replicas": replicas}, spec, gpus, holders, told)
    shared = {replica.partition("::")[0] for replica in replicas}
    return [
        {**one, "note": "" if is_pod or one["gpu"] in shared else _MAY_BE_SHARED} for one in found
    ]


def gpus(grant: Grant, node: Node | None) -> list[str]:
    """Return the GPUs and instances of a grant, by UUID where `node` tells, else as specs do."""
    nodes = {one["path"] for one in grant.edits.get("deviceNodes") or ()}
    found: dict[str, None] = {}
    for qualified in grant.devices:
        name = qualified.partition("=")[2]
        found.update(dict.fromkeys(_named(name, node, nodes)))
    return list(found)


def _named(name: str, node: Node | None, nodes: set[str]) -> list[str]:
    if node is None:
        return [name]
    by_name = {str(gpu.index): gpu.uuid or name for gpu in node.gpus}
    by_name.update(
        {f"{gpu.index}:{one.index}": one.uuid for gpu in node.gpus for one in gpu.instances}
    )
    if name != "all":
        return [by_name.get(name, name)]
    whole = [gpu for gpu in node.gpus if f"/dev/nvidia{gpu.minor}" in nodes]
    return [
        name
        for gpu in whole
        for name in ([one.uuid for one in gpu.instances] or [gpu.uuid or str(gpu.index)])
    ]


def _is_pending(record: dict[str, Any]) -> bool:
    return not str(record["trouble"]).startswith("GH")
