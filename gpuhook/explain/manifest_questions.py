# SPDX-License-Identifier: Apache-2.0
"""Containers of Kubernetes manifests as questions, with the device plugin's allocation."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.explain import question as kinds
from gpuhook.explain.pods import resource_names
from gpuhook.explain.pods.container_spec import as_spec
from gpuhook.explain.question import Question
from gpuhook.host.hot import state
from gpuhook.vendors.catalogue import vendor_of_node
from gpuhook.vendors.plugin.plugin_place import PluginPlace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from gpuhook.device_plugin.config.configuration import Configuration
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.pods.pod_requests import Allocated, PodRequest
    from gpuhook.vendors.plugin.vendor_part import VendorPart

_IMAGE = "a manifest does not have the image's variables: pass them with --env"


def questions(text: str, where: str) -> list[Question]:
    """Return the question of each container in manifests of pods and workloads.

    allotted() adds the allocation of the device plugin. Raises GH1930 to GH1932.
    """
    from gpuhook.explain.pods import pod_manifests  # it loads the code for YAML

    return [
        Question(kinds.POD, one.title, as_spec(one), notes=(_IMAGE,), asked=one)
        for one in pod_manifests.read(text, where)
    ]


def allotted(
    found: Sequence[Question],
    target: ExplainedNode,
    plugin_config: str | None,
    image_env: Sequence[str],
    host_root: str | None = None,
) -> list[Question]:
    """Return the questions with the placement of the pods and the device plugin's allocation.

    `plugin_config` is the path of the plugin's configuration, None for its defaults; `image_env`
    are the variables of the containers' image. `host_root` is None for a node that is not this
    machine. Each pod is alone on the node. Without the facts of the GPUs that a container requests
    there is no allocation. Questions other than pods are unchanged. Raises GH1800 and GH1801 for
    the configuration, and what pod_answers.of_pods() raises.
    """
    asked = [one.asked for one in found if one.asked is not None]
    if not asked:
        return list(found)
    from gpuhook.explain.pods import plugin_offer  # it loads the device plugin
    from gpuhook.explain.pods.scheduling import pod_placements

    chosen = plugin_offer.configuration(plugin_config)
    parts, failures = node_parts(target)
    unknown = _unknown(target, parts, failures)
    given = iter(_allocated(asked, parts, unknown, chosen))
    placements = iter(pod_placements.pod_placements(asked, parts, chosen, host_root))
    nodes = [node for part in parts for node in part.device_nodes]
    done = []
    for one in found:
        if one.asked is not None:
            allocated = next(given)
            spec = as_spec(one.asked, allocated, nodes, image_env=image_env)
            notes = () if image_env else one.notes
            one = replace(
                one, spec=spec, notes=notes, allocated=allocated, placement=next(placements)
            )
        done.append(one)
    return done


def node_parts(target: ExplainedNode) -> tuple[tuple[VendorPart, ...], tuple[str, ...]]:
    """Return the vendors' known parts of the node, and why some could not be read."""
    from gpuhook.device_plugin import node_snapshot

    own = [] if target.facts is None else [target.vendor.inventory_part(target.facts)]
    first = [replace(one, warnings=()) for one in own]  # the notes on the node have these
    if target.parts is not None:
        return (*first, *target.parts), ()
    inventory = None if target.is_here else target.where
    # Without any, only the options of one driver describe the node.
    others = [vendor_of_node(one.node) for one in target.context.further]
    place = PluginPlace(state.host_root())
    found, failures = node_snapshot.take_parts(others, inventory, place)
    return (*first, *found), failures


def _unknown(
    target: ExplainedNode, parts: Sequence[VendorPart], failures: Sequence[str]
) -> set[str]:
    """Return the domains of the vendors whose GPUs are unknown.

    The first vendor's GPUs are unknown without the facts, unless this machine has none.
    """
    unknown = {failure.partition(":")[0] for failure in failures}
    known = {part.domain for part in parts}
    if target.vendor.domain not in known and not target.vendor.absence(state.host_root()):
        unknown.add(target.vendor.domain)
    return unknown


def _allocated(
    asked: Sequence[PodRequest],
    parts: Sequence[VendorPart],
    unknown: Collection[str],
    chosen: Configuration,
) -> list[Allocated | None]:
    """Return the allocation of each container, None if the GPUs that it requests are unknown."""
    from gpuhook.explain.pods import pod_answers

    if not parts:
        return [None] * len(asked)
    given = pod_answers.of_pods(asked, parts, chosen)
    return [
        None
        if any(resource_names.vendor_of(name).domain in unknown for name in one.gpus)
        else allocated
        for one, allocated in zip(asked, given, strict=True)
    ]
