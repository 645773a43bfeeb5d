# SPDX-License-Identifier: Apache-2.0
"""The nodes of the further vendors, for plans of containers that name their devices.

The first vendor's node is part of every plan: it serves all names that no other vendor serves. A
vendor's modules are imported only for a container with one of its words.
"""

from __future__ import annotations

from gpuhook.host.hot import bundle, fastjson
from gpuhook.vendors.hot.prefilter import FURTHER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.vendors.interface import VendorNode

_AMD = "gpuhook.vendors.amd.hot.amd_plan_node"


def further_nodes(
    load: Callable[[str, str], Registry], *, is_here: bool = True
) -> list[VendorNode]:
    """Return the node of each further vendor.

    `load(vendor, way)` returns the registry of the node's CDI specs. `is_here`: it is this machine.
    """
    bundle.load(_AMD)
    from gpuhook.vendors.amd.hot.amd_plan_node import AmdPlanNode

    return [AmdPlanNode(load, is_here=is_here)]


def is_named(spec: dict[str, Any]) -> bool:
    """Return whether a config.json has a word of a further vendor."""
    annotations = spec.get("annotations")
    texts = [
        *fastjson.strings(spec, "process", "env"),
        *map(str, annotations.values() if isinstance(annotations, dict) else ()),
        *(str(mount.get("destination")) for mount in fastjson.objects(spec, "mounts")),
    ]
    return any(word in text for text in texts for word in FURTHER)
