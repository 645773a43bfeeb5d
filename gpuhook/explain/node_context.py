# SPDX-License-Identifier: Apache-2.0
"""The node on which a request is explained: what it plans by, and what is known of its GPUs.

A node's specs say what it grants, and generate-cdi's notes what its GPUs are. A node that has
neither is asked now, and described in memory as generate-cdi would describe it.
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
PATIENCE = 15.0  # seconds for a driver to answer: it takes two on a node with 16 GPUs
_MAX_SIZE = 16 << 20


@dataclass(frozen=True, slots=True)
class Ground:
    """What a node plans by: `heard` is the log of that, `node` are its facts, if known.

    `source` is one of INVENTORY, SPECS, LIVE and NOTHING; `trouble` is what is wrong with the
    node's settings, which refuses every container that asks.
    """

    context: PlanContext
    heard: Heard
    source: str
    where: str
    node: Node | None = None
    notes: tuple[str, ...] = ()
    trouble: GpuhookError | None = None

    @property
    def is_here(self) -> bool:
        """Whether it is this machine, whose files can be looked at."""
        return self.source != INVENTORY


def of_node(node: Node, settings: Settings, where: str) -> Ground:
    """Return the ground of a node that is not this one; raises what describing it raises."""
    heard = Heard()
    described = DescribedNode(node, settings, is_elsewhere=True)
    context = PlanContext(settings, described, heard)
    return Ground(context, heard, INVENTORY, where, node, tuple(described.warnings))


def here(settings: Settings, trouble: GpuhookError | None, ask: Callable[[], Node]) -> Ground:
    """Return the ground of this node; `ask` asks its driver, which is done only where it must."""
    heard = Heard()
    read = SpecNode(settings)
    context = PlanContext(settings, read, heard)
    known = [spec for kind in _kinds(read) for spec in _specs(read, kind)]
    if known:
        where = ", ".join(dict.fromkeys(known))
        notes = tuple(_rewritten(read))
        return Ground(context, heard, SPECS, where, noted(), notes, trouble)
    try:
        node = node_in_child(ask)
        described = DescribedNode(node, settings)
    except GpuhookError as error:
        dirs = ", ".join(settings.spec_dirs)
        note = f"no spec in {dirs}, and the driver does not tell: {error.code}: {error.message}"
        return Ground(context, heard, NOTHING, dirs, notes=(note,), trouble=trouble)
    dirs = ", ".join(settings.spec_dirs)
    note = f"no spec of {read.kind} in {dirs}: explained is {NAME}"
    context = PlanContext(settings, described, heard)
    return Ground(context, heard, LIVE, NAME, node, (note, *described.warnings), trouble)


def _rewritten(read: SpecNode) -> Iterator[str]:
    """Yield a note on each stale spec that a create has written anew first."""
    for path, changed in read.await_refresh().items():
        yield (
            f"{path} describes another state of this host ({changed}): gpuhook-runtime has "
            "`gpuhook refresh` write it anew before the container starts (cdi.onStale: refresh); "
            "explained is the spec as it is, and devices and files may be others then. Where an "
            "engine applies the spec by itself, its hook refuses the container until then (GH1120)"
        )


def with_facts(ground: Ground, ask: Callable[[], Node]) -> Ground:
    """Return the ground with the facts of its GPUs, which `ask` asks for if nobody noted them."""
    if ground.node is not None or ground.source != SPECS:
        return ground
    try:
        return replace(ground, node=node_in_child(ask))
    except GpuhookError as error:
        note = f"what its GPUs are nobody tells: {error.code}: {error.message}"
        return replace(ground, notes=(*ground.notes, note))


def asked_of(
    settings: Settings, trouble: GpuhookError | None, ask: Callable[[], Node], where: str
) -> Ground:
    """Return the ground of the node that `ask` finds, whatever specs are here.

    Raises what node_in_child() raises, and what describing the node raises.
    """
    heard, node = Heard(), node_in_child(ask)
    described = DescribedNode(node, settings)
    context = PlanContext(settings, described, heard)
    return Ground(context, heard, LIVE, where, node, tuple(described.warnings), trouble)


def node_in_child(ask: Callable[[], Node]) -> Node:
    """Return the node that `ask` finds, in a child process: a driver may hang.

    Raises what `ask` raises as a fault, GH1256 if there is no answer within PATIENCE, and GH1257 if
    the child ends without one.
    """
    return driver_worker.call_driver(ask, PATIENCE, relay_stderr=True)


def noted() -> Node | None:
    """Return the node as generate-cdi noted it on this machine, None without usable notes."""
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
