# SPDX-License-Identifier: Apache-2.0
"""The placement of the containers of a manifest: by the scheduler, and by the node's engine.

A pod is placed as a whole: its first container has the requirements and the objections.
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
    from gpuhook.explain.pods.scheduling.cri_handlers import CriHandlers
    from gpuhook.explain.pods.scheduling.scheduling_node import SchedulingNode
    from gpuhook.vendors.vendor_part import VendorPart


def pod_placements(
    asked: Sequence[PodRequest],
    parts: Sequence[VendorPart],
    configuration: Configuration,
    host_root: str | None,
) -> list[Placement]:
    """Return the placement of each container; `host_root` is None for another machine's node.

    `parts` have the known GPUs of the vendors.
    """
    here = scheduling_node.chosen_node(asked[0].nodes, host_root)
    if here is None:
        here = scheduling_node.scheduling_node(parts, configuration, host_root)
    has_class = host_root is not None and any(one.runtime_class for one in asked)
    handlers = cri_handlers.cri_handlers(host_root) if has_class and host_root else None
    pods: dict[int, Placement] = {}
    found: list[Placement] = []
    for one in asked:
        if one.position not in pods:
            found.append(_placement(one, here, handlers))
            pods[one.position] = replace(found[-1], requirements=(), objections=())
        else:
            found.append(pods[one.position])
    return found


def _placement(asked: PodRequest, node: SchedulingNode, handlers: CriHandlers | None) -> Placement:
    judged = placement(asked, node)
    # A pod of another node has no sandbox here.
    refusal = handlers.objection(asked) if handlers and not judged.objections else None
    return replace(judged, objections=(*judged.objections, refusal)) if refusal else judged
