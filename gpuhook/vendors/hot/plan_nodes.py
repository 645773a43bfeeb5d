# SPDX-License-Identifier: Apache-2.0
"""The nodes of a plan, one for each vendor whose devices the container may request.

The first vendor's node is part of every plan: it serves all names that no other vendor serves. The
modules of a further vendor are imported only for a container with one of its words.

`load(vendor, way)` returns the registry of the node's CDI specs.
"""

from __future__ import annotations

from gpuhook.host.hot import bundle
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from gpuhook.cdi.hot.registry import Registry
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode

    Load: TypeAlias = Callable[[str, str], Registry]

_AMD = "gpuhook.vendors.amd.hot.amd_plan_node"


def first_node(settings: Settings, load: Load) -> VendorNode:
    """Return the node of the first vendor on this machine."""
    return NvidiaNode(settings, load)


def further_nodes(load: Load, *, is_here: bool = True) -> list[VendorNode]:
    """Return the node of each further vendor; `is_here` means that it is this machine."""
    bundle.load(_AMD)
    from gpuhook.vendors.amd.hot.amd_plan_node import AmdPlanNode

    return [AmdPlanNode(load, is_here=is_here)]
