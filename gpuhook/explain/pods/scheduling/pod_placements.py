# SPDX-License-Identifier: Apache-2.0
"""The placement of the containers of a manifest: by the scheduler, and by the node's engine.

A pod is placed as a whole: its first container has the objections.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.explain.pods.scheduling import cri_handlers, scheduling_node
from gpuhook.explain.pods.scheduling.placement import Placement, placement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.explain.pods.pod_requests import PodRequest
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def pod_placements(
    asked: Sequence[PodRequest],
    node: Node | None,
    configuration: Configuration,
    host_root: str | None,
) -> list[Placement]:
    """Return the placement of each container; `host_root` is None for another machine's node."""
    here = scheduling_node.chosen_node(asked[0].nodes, host_root)
    if here is None:
        here = scheduling_node.scheduling_node(node, configuration, host_root)
    has_class = host_root is not None and any(one.runtime_class for one in asked)
    handlers = cri_handlers.cri_handlers(host_root) if has_class and host_root else None
    found: list[Placement] = []
    pods: set[tuple[str, str, str]] = set()
    for one in asked:
        judged = placement(one, here)
        # A pod of another node has no sandbox here.
        refusal = handlers.objection(one) if handlers and not judged.objections else None
        pod = (one.namespace, one.workload, one.pod)
        objections = (*judged.objections, *([refusal] if refusal else ()))
        found.append(replace(judged, objections=() if pod in pods else objections))
        pods.add(pod)
    return found
