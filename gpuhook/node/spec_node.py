# SPDX-License-Identifier: Apache-2.0
"""This node by its CDI specs, for a program that only reads: nothing is written or compiled.

gpuhook-runtime's refresh of a stale spec is reported here, and not done.
"""

from __future__ import annotations

from gpuhook.cdi import spec_list
from gpuhook.cdi.hot.registry import Registry
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import settings, state
from gpuhook.node import settings_file
from gpuhook.node.kept_log import KeptLog
from gpuhook.request import plan
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.hot import plan_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuhook.entry.plan_context import VendorContext
    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode


def context_of_node() -> PlanContext:
    """Return the context of plans on this node, with its settings; GH1530 if these are broken."""
    chosen = settings_file.of_node()
    load = _load(chosen)
    others = plan_nodes.further_nodes(load)
    return PlanContext(chosen, plan_nodes.first_node(chosen, load), KeptLog(), others=others)


def first_node(chosen: Settings) -> VendorNode:
    """Return this node with the devices of the first vendor."""
    return plan_nodes.first_node(chosen, _load(chosen))


def _load(chosen: Settings) -> Callable[[str, str], Registry]:
    dirs = chosen.spec_dirs
    return lambda vendor, way: Registry(dirs, spec_list.plan_layers(dirs), vendor, way)


def awaited_refreshes(context: PlanContext) -> dict[str, str]:
    """Treat stale specs that a create would write again as fresh.

    Returns path -> what has changed on this host since. {} if such containers are refused: by
    cdi.onStale, for a user who may not write specs, and without a GPU.
    """
    if context.settings.on_stale != settings.REFRESH or state.is_rootless():
        return {}
    found: dict[str, str] = {}
    for node in [one.node for one in context.every()]:
        vendor = vendor_of_resource(node.vocabulary.default_kind)
        for spec in node.registry().all():
            changed = node.changes(spec)
            if changed and not vendor.absence(state.host_root()):
                node.await_refresh(spec)
                found[spec.path] = "; ".join(changed)
    return found


def known_capabilities(spec: dict[str, Any], context: VendorContext) -> frozenset[str]:
    """Return the driver capabilities that a container requests, of those it may have.

    The default for unknown or forbidden capabilities.
    """
    try:
        return plan.capabilities(spec, context.settings, context.node)
    except GpuhookError:
        return plan.parse_capabilities(None, context.settings, context.node)
