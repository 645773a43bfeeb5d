# SPDX-License-Identifier: Apache-2.0
"""The node for which a request is explained: its plan context and the facts of its GPUs.

The plan comes from the node's CDI specs, the facts from the node.json of generate-cdi. On a node
with neither, the driver is asked and the node is described in memory, as generate-cdi would do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, files
from gpuhook.node import driver_worker
from gpuhook.node.described_node import NAME, DescribedNode, Heard
from gpuhook.node.spec_node import SpecNode
from gpuhook.vendors.nvidia.hot import node_json, vocabulary
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode
    from gpuhook.vendors.nvidia.inventory.inventory import Node

INVENTORY, SPECS, LIVE, NOTHING = "inventory", "specs", "live", "nothing"
DRIVER_SECONDS = 15.0  # a driver takes two seconds on a node with 16 GPUs
_MAX_SIZE = 16 << 20


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """The plan context of a node, its log, and the facts of the node if known.

    `source` is one of INVENTORY, SPECS, LIVE and NOTHING. A `settings_error` refuses each container
    that requests a GPU.
    """

    context: PlanContext
    log: Heard
    source: str
    where: str
    facts: Node | None = None
    notes: tuple[str, ...] = ()
    settings_error: GpuhookError | None = None

    @property
    def is_here(self) -> bool:
        """Whether this is the node of this machine, whose files can be read."""
        return self.source != INVENTORY


def other_node(node: Node, settings: Settings, where: str) -> ExplainedNode:
    """Return the context of another node; raises what describing it raises."""
    log = Heard()
    described = DescribedNode(node, settings, is_elsewhere=True)
    context = PlanContext(settings, described, log)
    return ExplainedNode(context, log, INVENTORY, where, node, tuple(described.warnings))


def this_node(
    settings: Settings, error: GpuhookError | None, ask: Callable[[], Node]
) -> ExplainedNode:
    """Return the context of this node; `ask` asks the driver if the node has no specs."""
    log = Heard()
    specs = SpecNode(settings)
    context = PlanContext(settings, specs, log)
    known = [spec for kind in _kinds(specs) for spec in _specs(specs, kind)]
    if known:
        where = ", ".join(dict.fromkeys(known))
        notes = tuple(_stale_specs(specs))
        return ExplainedNode(context, log, SPECS, where, recorded_facts(), notes, error)
    try:
        node = node_in_child(ask)
        described = DescribedNode(node, settings)
    except GpuhookError as failure:
        dirs = ", ".join(settings.spec_dirs)
        note = f"no spec in {dirs}, and no facts: {failure.code}: {failure.message}"
        return ExplainedNode(context, log, NOTHING, dirs, notes=(note,), settings_error=error)
    dirs = ", ".join(settings.spec_dirs)
    note = f"no spec of {specs.kind} in {dirs}: the explanation is by {NAME}"
    context = PlanContext(settings, described, log)
    return ExplainedNode(context, log, LIVE, NAME, node, (note, *described.warnings), error)


def _stale_specs(specs: SpecNode) -> Iterator[str]:
    """Yield a note on each stale spec, which a create refreshes first."""
    for path, changed in specs.await_refresh().items():
        yield (
            f"{path} is stale ({changed}): gpuhook-runtime runs `gpuhook refresh` before the "
            "container starts (cdi.onStale: refresh). This explanation is by the spec as it is; "
            "devices and files may differ after the refresh. If an engine applies the spec itself, "
            "its hook refuses the container until then (GH1120)"
        )


def with_facts(target: ExplainedNode, ask: Callable[[], Node]) -> ExplainedNode:
    """Return the context with the facts of the GPUs; `ask` asks the driver if they are missing."""
    if target.facts is not None or target.source != SPECS:
        return target
    try:
        return replace(target, facts=node_in_child(ask))
    except GpuhookError as error:
        note = f"GPU details unavailable: {error.code}: {error.message}"
        return replace(target, notes=(*target.notes, note))


def live_node(
    settings: Settings, error: GpuhookError | None, ask: Callable[[], Node], where: str
) -> ExplainedNode:
    """Return the context of the node that `ask` finds, without its specs.

    Raises what node_in_child() raises, and what describing the node raises.
    """
    log, node = Heard(), node_in_child(ask)
    described = DescribedNode(node, settings)
    context = PlanContext(settings, described, log)
    return ExplainedNode(context, log, LIVE, where, node, tuple(described.warnings), error)


def node_in_child(ask: Callable[[], Node]) -> Node:
    """Return the node that `ask` finds in a child process: a driver may hang.

    Raises the faults of `ask`, GH1256 without an answer in DRIVER_SECONDS, and GH1257 if the child
    ends without an answer.
    """
    return driver_worker.call_driver(ask, DRIVER_SECONDS, relay_stderr=True)


def recorded_facts() -> Node | None:
    """Return the node in the node.json of generate-cdi, None without a usable file."""
    try:
        document: Any = fastjson.loads(files.read(node_json.path(), _MAX_SIZE))
        return dump.from_dict(document)
    except (OSError, ValueError, KeyError, TypeError, GpuhookError):
        return None


def _kinds(node: NvidiaNode) -> tuple[str, ...]:
    return (node.kind, vocabulary.PLUGIN_KIND)


def _specs(node: NvidiaNode, kind: str) -> list[str]:
    try:
        return [spec.path for spec in node.registry().kind(kind)]
    except GpuhookError:
        return []
