# SPDX-License-Identifier: Apache-2.0
"""Who uses which GPU of a cluster: a document, and the rows of a table."""

from __future__ import annotations

from gpuhook.request.memory_request import amount
from gpuhook.usage.display_names import NOTHING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from gpuhook.cluster.plugin_metrics import NodeMetrics

SCHEMA = "gpuhook/cluster-ps/v1"
HEADERS = ("NODE", "GPU", "POD", "UNITS", "MEMORY", "LIMIT")
WIDE_HEADERS = (*HEADERS, "UUID", "SHARE", "BY")
_MEMORY = {
    "gpuhook_container_memory_used_bytes": "used",
    "gpuhook_container_memory_fair_share_bytes": "share",
    "gpuhook_container_memory_limit_bytes": "limit",
}


def document(nodes: Sequence[NodeMetrics], namespace: str | None) -> dict[str, Any]:
    """Return the GPUs of each node, and the containers of `namespace` (None: of all) on them."""
    return {"schema": SCHEMA, "nodes": [_node(one, namespace) for one in nodes]}


def _node(found: NodeMetrics, namespace: str | None) -> dict[str, Any]:
    gpus: dict[str, dict[str, Any]] = {}
    users: dict[tuple[str, str, str, str], dict[str, Any]] = {}
    for one in found.samples:
        gpu = one.labels.get("gpu", "")
        if one.name == "gpuhook_gpu_info":
            gpus[gpu] = _gpu(one.labels)
        elif one.name in _MEMORY or one.name == "gpuhook_replica_holder":
            names = [one.labels.get(key, "") for key in ("namespace", "pod", "container")]
            if namespace is None or names[0] == namespace:
                use = users.setdefault((gpu, *names), _user(gpu, *names))  # type: ignore[arg-type]
                _add(use, one.name, one.labels, one.value)
    for one in found.samples:
        gpu = one.labels.get("gpu", "")
        if one.name == "gpuhook_gpu_memory_total_bytes" and gpu in gpus:
            gpus[gpu]["total"] = int(one.value)
    order = sorted(users, key=lambda key: (gpus.get(key[0], {}).get("index", ""), key))
    return {
        "node": found.node,
        "trouble": found.trouble or None,
        "gpus": sorted(gpus.values(), key=lambda gpu: str(gpu["index"])),
        "containers": [users[key] for key in order],
    }


def _gpu(labels: dict[str, str]) -> dict[str, Any]:
    known = {key: labels.get(key) or None for key in ("index", "model", "profile")}
    return {"gpu": labels.get("gpu", ""), **known, "total": None}


def _user(gpu: str, namespace: str, pod: str, container: str) -> dict[str, Any]:
    names = {"namespace": namespace or None, "pod": pod or None, "container": container}
    return {"gpu": gpu, **names, "units": 0, "used": None, "share": None, "limit": None, "by": None}


def _add(use: dict[str, Any], name: str, labels: dict[str, str], value: float) -> None:
    if name in _MEMORY:
        use[_MEMORY[name]] = int(value)
        use["by"] = labels.get("by", use["by"])
    else:
        use["units"] += int(value)  # more than 1 for units of memory


def rows(found: dict[str, Any], *, is_wide: bool) -> list[list[str]]:
    """Return a row for each container and GPU, and one for each GPU without a container."""
    return [row for node in found["nodes"] for row in _rows(node, is_wide=is_wide)]


def _rows(node: dict[str, Any], *, is_wide: bool) -> Iterable[list[str]]:
    gpus = {one["gpu"]: one for one in node["gpus"]}
    for use in node["containers"]:
        gpu = gpus.get(use["gpu"], {})
        yield _row(node["node"], gpu, use, is_wide=is_wide)
    held = {use["gpu"] for use in node["containers"]}
    for gpu in node["gpus"]:
        if gpu["gpu"] not in held:
            yield _row(node["node"], gpu, _user(gpu["gpu"], "", "", ""), is_wide=is_wide)


def _row(node: str, gpu: dict[str, Any], use: dict[str, Any], *, is_wide: bool) -> list[str]:
    name = f"{gpu.get('index') or '?'} ({gpu.get('profile') or gpu.get('model') or 'unknown'})"
    pod = "/".join(filter(None, (use["namespace"], use["pod"], use["container"])))
    memory = NOTHING
    if use["used"] is not None:
        memory = amount(use["used"]) + (f"/{amount(gpu['total'])}" if gpu.get("total") else "")
    limit = amount(use["limit"]) if use["limit"] else NOTHING
    row = [node, name, pod or NOTHING, str(use["units"] or NOTHING), memory, limit]
    if is_wide:
        share = amount(use["share"]) if use["share"] else NOTHING
        row += [use["gpu"], share, use["by"] or NOTHING]
    return row
