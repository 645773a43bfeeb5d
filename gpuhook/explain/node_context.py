# SPDX-License-Identifier: Apache-2.0
"""The node for which a request is explained: its plan context and the facts of its GPUs.

The plan comes from the node's CDI specs, the facts from the node.json of generate-cdi. On a node
with neither, the driver is asked and the node is described in memory, as generate-cdi would do.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from gpuhook.device_plugin import node_snapshot
from gpuhook.entry.plan_context import PlanContext
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.node.described_devices import further_devices
from gpuhook.node.kept_log import KeptLog
from gpuhook.node.spec_node import awaited_refreshes, first_node
from gpuhook.usage import usage_devices
from gpuhook.vendors import driver_worker
from gpuhook.vendors.catalogue import further_absences, vendor_of, vendor_of_node, vendors
from gpuhook.vendors.plugin.plugin_place import PluginPlace
from gpuhook.vendors.plugin.vendor_part import plugin_vendor
from gpuhook.vendors.spec.spec_choices import DESCRIBED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.host.hot.settings import Settings
    from gpuhook.vendors.interface import VendorNode
    from gpuhook.vendors.interfaces.vendor_interface import Vendor
    from gpuhook.vendors.plugin.vendor_part import VendorPart
    from gpuhook.vendors.usage.usage_device import UsageDevice

INVENTORY, SPECS, LIVE, NOTHING = "inventory", "specs", "live", "nothing"
_NO_LIBRARY = "GH1200"  # of the first vendor: another one may be here
DRIVER_SECONDS = 15.0  # a driver takes two seconds on a node with 16 GPUs


@dataclass(frozen=True, slots=True)
class ExplainedNode:
    """The plan context of a node, and the facts of the node if known.

    `source` is one of INVENTORY, SPECS, LIVE and NOTHING. `facts` are the inventory of the first
    vendor, whose own model it is. A `settings_error` refuses each container that requests a GPU.
    """

    context: PlanContext
    source: str
    where: str
    facts: object | None = None
    notes: tuple[str, ...] = ()
    settings_error: GpuhookError | None = None
    devices: tuple[UsageDevice, ...] = ()  # of all vendors, as far as they are known
    parts: tuple[VendorPart, ...] | None = None  # of further vendors; None: not read yet

    @property
    def is_here(self) -> bool:
        """Whether this is the node of this machine, whose files can be read."""
        return self.source != INVENTORY

    @property
    def vendor(self) -> Vendor:
        """The first vendor."""
        return vendor_of_node(self.context.node)

    def node_of(self, qualified: str) -> VendorNode:
        """Return the node with the devices of a vendor to which a qualified name belongs."""
        nodes = [one.node for one in self.context.every()]
        return next(node for node in nodes if node.serves(qualified))


def other_node(node: object, settings: Settings, where: str) -> ExplainedNode:
    """Return the context of another node; raises what describing it raises."""
    devices = usage_devices.of_file(where)
    others = further_devices(settings, where)
    described = vendor_of(node).described_node(
        node, settings, is_here=False, may_be_empty=bool(devices)
    )
    context = PlanContext(settings, described.node, KeptLog(), others=others)
    return ExplainedNode(context, INVENTORY, where, node, described.warnings, devices=devices)


def this_node(
    settings: Settings, error: GpuhookError | None, ask: Callable[[], object]
) -> ExplainedNode:
    """Return the context of this node; `ask` asks the driver if the node has no specs."""
    node = first_node(settings)
    context = PlanContext(settings, node, KeptLog(), others=further_devices(settings))
    where = ", ".join(_spec_paths(context))
    if where:
        facts = vendor_of_node(node).known_inventory()
        devices = usage_devices.known_devices().devices
        notes = (*_stale_specs(context), *_described(context))
        return ExplainedNode(context, SPECS, where, facts, notes, error, devices)
    dirs = ", ".join(settings.spec_dirs)
    try:
        found = live_node(settings, error, ask, DESCRIBED)
    except GpuhookError as failure:
        if notes := tuple(_described(context)):
            devices = usage_devices.known_devices().devices
            return ExplainedNode(context, LIVE, DESCRIBED, None, notes, error, devices)
        note = f"no spec in {dirs}, and no facts: {failure.code}: {failure.message}"
        others = further_absences(state.host_root())
        devices = usage_devices.known_devices().devices
        return ExplainedNode(context, NOTHING, dirs, None, (note, *others), error, devices)
    note = f"no spec of {node.kind} in {dirs}: the explanation uses {DESCRIBED}"
    more = tuple(_described(context))
    found.context.further = context.further
    devices = usage_devices.of_inventory(found.facts)
    return replace(found, notes=(note, *more, *found.notes), devices=devices)


def _described(context: PlanContext) -> Iterator[str]:
    """Yield a note on each further vendor whose devices no spec of this node describes."""
    for one in context.further:
        with suppress(GpuhookError):
            if any(spec.path == DESCRIBED for spec in one.node.registry().kind(one.node.kind)):
                yield f"no spec of {one.node.kind} on this node: the explanation uses {DESCRIBED}"


def _stale_specs(context: PlanContext) -> Iterator[str]:
    """Yield a note on each stale spec, which a create refreshes first."""
    for path, changed in awaited_refreshes(context).items():
        yield (
            f"{path} is stale ({changed}): gpuhook-runtime runs `gpuhook refresh` before the "
            "container starts (cdi.onStale: refresh). This explanation uses the spec as it is; "
            "devices and files may differ after the refresh. If an engine applies the spec "
            "itself, its hook refuses the container until then (GH1120)"
        )


def with_facts(target: ExplainedNode, ask: Callable[[], object]) -> ExplainedNode:
    """Return the context with the facts of the GPUs; `ask` asks the driver if they are missing."""
    if target.facts is not None or target.source != SPECS:
        return target
    try:
        facts = _call_driver(ask)
    except GpuhookError as error:
        first, *others = [vendor.absence(state.host_root()) for vendor in vendors()]
        if first and not all(others):
            return target  # a node with GPUs of a further vendor only
        note = f"GPU details unavailable: {error.code}: {error.message}"
        return replace(target, notes=(*target.notes, note))
    return replace(target, facts=facts, devices=usage_devices.of_inventory(facts))


def selected_node(
    settings: Settings,
    error: GpuhookError | None,
    ask: Callable[[], object],
    where: str,
    roots: tuple[str, str],
) -> ExplainedNode:
    """Return the context of the node that `ask` finds, or that has a further vendor's GPUs.

    Its specs are not used. `roots` are its host root and dev root. Raises as live_node() does, but
    not for a missing driver if a further vendor has GPUs.
    """
    others = further_devices(settings, roots=roots)
    parts, failures = node_snapshot.take_parts(vendors()[1:], None, PluginPlace(*roots))
    devices = tuple(
        device for part in parts for device in vendor_of(part.inventory).usage(part, roots[0])
    )
    try:
        found = live_node(settings, error, ask, where)
    except GpuhookError as failure:
        if failure.code != _NO_LIBRARY or not devices:
            raise
        context = PlanContext(settings, first_node(settings), KeptLog())
        found = ExplainedNode(context, LIVE, where, settings_error=error)
    context = PlanContext(settings, found.context.node, found.context.log, others=others)
    notes, every = (*found.notes, *failures), (*found.devices, *devices)
    return replace(found, context=context, devices=every, parts=parts, notes=notes)


def live_node(
    settings: Settings, error: GpuhookError | None, ask: Callable[[], object], where: str
) -> ExplainedNode:
    """Return the context of the node that `ask` finds, without its specs.

    Raises what _call_driver() raises, and what describing the node raises.
    """
    node = _call_driver(ask)
    vendor = vendor_of(node)
    described = vendor.described_node(node, settings)
    context = PlanContext(settings, described.node, KeptLog())
    devices = vendor.inventory_devices(node)
    return ExplainedNode(context, LIVE, where, node, described.warnings, error, devices=devices)


def _call_driver(ask: Callable[[], object]) -> object:
    """Return the node that `ask` finds in a child process: a driver may hang.

    Raises the faults of `ask`, GH1256 without an answer in DRIVER_SECONDS, and GH1257 if the child
    ends without an answer.
    """
    return driver_worker.call_driver(ask, DRIVER_SECONDS, relay_stderr=True)


def _spec_paths(context: PlanContext) -> list[str]:
    """Return the paths of the specs with GPUs, [] if a directory cannot be read."""
    paths: list[str] = []
    kinds = [(one.node, one.node.kind) for one in context.every()]
    plugins = f"{plugin_vendor(vendor_of_node(context.node).domain)}/gpu"
    for node, kind in [*kinds, (context.node, plugins)]:
        with suppress(GpuhookError):
            paths += [spec.path for spec in node.registry().kind(kind) if spec.path != DESCRIBED]
    return list(dict.fromkeys(paths))
