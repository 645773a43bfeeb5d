# SPDX-License-Identifier: Apache-2.0
"""The devices of further vendors in an explanation: their names, ids, and isolation."""

from __future__ import annotations

from typing import Any

from gpuhook.explain.trace import resolution_trace
from gpuhook.request.memory_request import amount
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.device_isolation import SharedUse
from gpuhook.vendors.nvidia.usage import nvidia_devices

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.simulate import SimulatedAnswer


def device_trace(answer: SimulatedAnswer) -> list[dict[str, Any]]:
    """Return the devices of each name of the requests that apply, or the fault of the name."""
    return [
        entry
        for context, verdict in answer.further
        if verdict.chosen is not None
        for entry in resolution_trace.device_trace(
            verdict.chosen.names, context.node, frozenset(), verdict.chosen
        )
    ]


def device_ids(devices: Iterable[dict[str, Any]], target: ExplainedNode) -> dict[str, str]:
    """Return the id of each device in a trace that is not the first vendor's, with its domain.

    Without the facts of the node, the name in the CDI spec is the id.
    """
    by_node = {one.node: one.uuid for one in target.devices if one.node}
    found: dict[str, str] = {}
    for one in devices:
        qualified = one["device"]
        if qualified is None or target.context.node.serves(qualified):
            continue
        kind, _, name = qualified.partition("=")
        known = [by_node[path] for path in one["nodes"] if path in by_node] or [name]
        found.update(dict.fromkeys(known, kind.partition("/")[0]))
    return found


def gpu_count(target: ExplainedNode) -> int | None:
    """Return the number of GPUs of all vendors, None if it is unknown."""
    first = nvidia_devices.of_node(target.facts)
    others = {one.gpu for one in target.devices} - {one.gpu for one in first}
    if target.facts is None:
        return len(others) or None
    return len(target.facts.gpus) + len(others)


def isolated(
    found: Iterable[dict[str, Any]],
    domains: Mapping[str, str],
    memory: Iterable[dict[str, Any]],
    target: ExplainedNode,
) -> list[dict[str, Any]]:
    """Return the isolation of each GPU with the sentences of its vendor.

    `found` is that of sharing_trace.isolated(), `domains` the domain of each vendor's devices by
    id, `memory` the limits of the container.
    """
    known = {one.uuid: one for one in target.devices}
    limits = {one["gpu"]: one["limit"] for one in memory if one["limit"]}
    result = []
    for one in found:
        vendor = next((v for v in vendors()[1:] if v.domain == domains.get(one["gpu"])), None)
        limit = limits.get(one["gpu"])
        if vendor is None:
            result.append(one)
            continue
        profile = known[one["gpu"]].profile if one["gpu"] in known else ""
        shown = amount(limit) if limit else ""
        use = SharedUse(one["sharing"], one["memory_by"], bool(profile), profile, limit=shown)
        result.append({**one, "isolation": dict(vendor.isolation(use).sentences())})
    return result
