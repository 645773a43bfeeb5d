# SPDX-License-Identifier: Apache-2.0
"""The edits that gpuhook would add for a container's request, and the specs of this node.

A vendor's specs show what the vendor adds; gpuhook's plan comes from a spec of generate-cdi.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import oci_spec
from gpuhook.cdi import spec_file as cdi_spec
from gpuhook.cdi import spec_notes
from gpuhook.cdi.hot import registry
from gpuhook.cdi.hot.container_edits import merged
from gpuhook.compare import original_request
from gpuhook.compare.items import node_specs
from gpuhook.entry import plan_context
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.request import plan
from gpuhook.vendors.catalogue import vendors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from typing import Any

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.container_edits import ContainerEdits
    from gpuhook.compare.items.node_specs import NodeSpec
    from gpuhook.entry.plan_context import PlanContext, VendorContext
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.plan import Injection
    from gpuhook.vendors.interface import VendorNode

    # The path and the content of each spec file in each directory, lowest priority first.
    Specs = list[list[tuple[str, dict[str, Any]]]]

_REFUSED = "GH1007"  # the node's policy refuses a source
_MAX_SPEC = 64 << 20


@dataclass(frozen=True, slots=True)
class ForeignSpec:
    """The edits in the specs of vendors' tools: mounts (source, destination) and variables."""

    mounts: frozenset[tuple[str, str]] = frozenset()
    variables: frozenset[str] = frozenset()


def _nothing() -> ContainerEdits:
    return {}


@dataclass(slots=True)
class ExpectedInjection:
    """The edits and jobs of a grant, empty without `names` and with a `refusal`.

    `whole` and `whole_todo` are the grant for all capabilities, `others` the device numbers of the
    nodes of all devices of the host. `further_nodes` are the paths of those of further vendors.
    `foreign` are the edits of other specs of this node. `notes` are the warnings of the wrapper.
    """

    names: list[str] = field(default_factory=list)
    where: str = ""
    capabilities: frozenset[str] = frozenset()
    edits: ContainerEdits = field(default_factory=_nothing)
    todo: list[Jobs] = field(default_factory=list)
    whole: ContainerEdits = field(default_factory=_nothing)
    whole_todo: list[Jobs] = field(default_factory=list)
    foreign: ForeignSpec = field(default_factory=ForeignSpec)
    others: dict[str, tuple[int, int]] = field(default_factory=dict)
    further_nodes: frozenset[str] = frozenset()
    refusal: GpuhookError | None = None
    notes: list[str] = field(default_factory=list)


class PlanNode:
    """The plan context of a node, and the results that do not depend on the container."""

    def __init__(self, context: PlanContext, specs: Specs) -> None:
        self.context = context
        self.foreign = foreign(specs)
        self.specs = read_node_specs(specs)
        self._whole: dict[tuple[str, ...], tuple[ContainerEdits, list[Jobs]]] = {}
        self._others: dict[str, tuple[int, int]] | None = None
        for one in context.every():
            _check_once(one.node)

    def whole(self, names: Sequence[str]) -> tuple[ContainerEdits, list[Jobs]]:
        """Return the edits and jobs for these names and all capabilities; do not change them."""
        key = tuple(names)
        if key not in self._whole:
            every = frozenset(self.context.node.capability_words)
            injection = plan.plan_names(names, every, self.context.node)
            self._whole[key] = injection.edits, injection.hook_jobs
        return self._whole[key]

    def others(self) -> dict[str, tuple[int, int]]:
        """Return the numbers of all devices' nodes, {} if a device cannot be resolved."""
        if self._others is None:
            try:
                self._others = _numbers(self.whole(("all",))[0])
            except GpuhookError:  # two specs describe a device, or none does
                self._others = {}
        return self._others


def _check_once(node: VendorNode) -> None:
    """Treat the specs that match this host as fresh: plans do not compare each with it again."""
    for spec in node.registry().all():
        if not node.changes(spec):
            node.await_refresh(spec)


def _numbers(edits: ContainerEdits) -> dict[str, tuple[int, int]]:
    """Return the numbers of the character devices in `edits` that the host has, by path."""
    found = {}
    for node in edits.get("deviceNodes") or ():
        with suppress(GpuhookError):  # the host no longer has it
            device = oci_spec.oci_device(node)
            if device["type"] == "c":
                found[node["path"]] = device["major"], device["minor"]
    return found


def expected_injection(
    plan_node: PlanNode, spec: dict[str, Any], nodes: Collection[str], *, is_given: bool
) -> ExpectedInjection:
    """Return what gpuhook would add for `spec`, a config.json without the edits of any program.

    If the spec requests nothing but the container got GPUs (`is_given`), the devices of its nodes
    `nodes` are the request.
    """
    context = plan_node.context
    logged = context.log.warnings
    found = ExpectedInjection()
    start = len(logged)
    try:
        found.capabilities = plan.capabilities(spec, context.settings, context.node)
        source = plan_context.source_logged(spec, context)
        refused = [warning for warning in logged[start:] if warning.code == _REFUSED]
        if source is not None:
            found.names, found.where = source.names, source.where
            _fill(found, plan_node, plan_context.plan_logged(spec, source, context))
        elif refused:
            found.refusal = refused[0]
        else:
            found.names = original_request.by_nodes(context.node, nodes) if is_given else []
            found.where = original_request.BY_NODES if found.names else ""
            if found.names:
                named = plan.plan_names(found.names, found.capabilities, context.node)
                _fill(found, plan_node, named)
        for one in context.further if found.refusal is None else ():
            _add_further(found, one, spec, nodes, is_given=is_given)
    except GpuhookError as error:
        found.refusal = error
    found.notes = [error.message for error in logged[start:]]
    return found


def _fill(found: ExpectedInjection, plan_node: PlanNode, injection: Injection) -> None:
    if not injection.is_given:
        return
    found.todo = injection.hook_jobs
    found.edits = plan.with_void(injection.edits, plan_node.context.node.vocabulary)
    found.whole, found.whole_todo = plan_node.whole(found.names)
    found.others, found.foreign = plan_node.others(), plan_node.foreign


def _add_further(
    found: ExpectedInjection,
    context: VendorContext,
    spec: dict[str, Any],
    nodes: Collection[str],
    *,
    is_given: bool,
) -> None:
    """Add the grant of a further vendor's devices: of the request, else of the nodes."""
    node = context.node
    every = _every(node)
    found.further_nodes |= frozenset(one["path"] for one in every.get("deviceNodes") or ())
    source = plan_context.source_logged(spec, context)
    if source is not None:
        names, where = source.names, source.where
        injection = plan_context.plan_logged(spec, source, context)
    else:
        is_held = is_given and bool(node.own_nodes(nodes))
        names = original_request.by_nodes(node, nodes) if is_held else []
        where = original_request.BY_NODES
        injection = plan.plan_names(names, frozenset(), node) if names else plan.Injection(None, [])
    if not injection.is_given:
        return
    found.names = [*found.names, *plan_context.in_ledger(names, context)]
    found.where = "; ".join(filter(None, (found.where, where)))
    found.edits = merged([found.edits, injection.edits])
    found.whole = merged([found.whole, injection.edits])
    found.others = {**found.others, **_numbers(every)}


def _every(node: VendorNode) -> ContainerEdits:
    """Return the edits for all devices of a vendor, {} if they cannot be resolved."""
    try:
        return plan.plan_names(("all",), frozenset(), node).edits
    except GpuhookError:
        return {}


def read_specs(settings: Settings, *kinds: str) -> Specs:
    """Return the specs of the vendors of GPUs, and of these kinds, in each directory.

    A spec without their names in its text is not parsed: a node may have a thousand of others.
    """
    names = {vendor.domain for vendor in vendors()} | {kind.partition("/")[0] for kind in kinds}
    words = [name.encode() for name in names if name]
    return [
        [(path, spec) for path in registry.files(directory) if (spec := _read(path, words))]
        for directory in settings.spec_dirs
    ]


def own_spec(specs: Specs, kind: str) -> str:
    """Return the path of a spec of `kind` by generate-cdi, "" for none."""
    found = (one for layer in reversed(specs) for one in layer)
    return next((path for path, spec in found if spec.get("kind") == kind and _is_own(spec)), "")


def read_node_specs(specs: Specs) -> tuple[NodeSpec, ...]:
    """Return the specs of the vendors whose GPUs need device nodes alone."""
    found = [one for layer in specs for one in layer]
    made = (node_specs.node_spec(path, one, is_own=_is_own(one)) for path, one in found)
    return tuple(one for one in made if one is not None)


def foreign(specs: Specs) -> ForeignSpec:
    """Return the edits in specs with driver files that gpuhook has not written."""
    domains = {vendor.domain for vendor in vendors() if vendor.traces.HAS_FILES}
    found = [spec for layer in specs for _, spec in layer if not _is_own(spec)]
    mounts: set[tuple[str, str]] = set()
    variables: set[str] = set()
    for spec in found:
        if str(spec.get("kind")).partition("/")[0] not in domains:
            continue
        for part in (spec, *_objects(spec.get("devices"))):
            edits = part.get("containerEdits")
            edits = edits if isinstance(edits, dict) else {}
            for mount in _objects(edits.get("mounts")):
                source, place = mount.get("hostPath"), mount.get("containerPath")
                if isinstance(source, str) and isinstance(place, str):
                    mounts.add((source, place))
            env = edits.get("env")
            variables.update(
                e for e in (env if isinstance(env, list) else ()) if isinstance(e, str)
            )
    return ForeignSpec(frozenset(mounts), frozenset(variables))


def _objects(found: object) -> list[dict[str, Any]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _read(path: str, words: Collection[bytes]) -> dict[str, Any]:
    """Return a spec with one of these words in its text, {} for any other file."""
    try:
        data = files.read(path, _MAX_SPEC)
        spec = cdi_spec.parser(path)(data, path) if any(word in data for word in words) else {}
    except (GpuhookError, OSError):
        return {}
    return spec if isinstance(spec, dict) else {}


def _is_own(spec: dict[str, Any]) -> bool:
    edits = spec.get("containerEdits")
    if not isinstance(edits, dict):
        return False
    if isinstance(spec.get("annotations"), dict) and spec_notes.OPTIONS in spec["annotations"]:
        return True
    hooks, env = edits.get("hooks"), edits.get("env")
    is_hooked = isinstance(hooks, list) and any(hook_args.is_ours(hook) for hook in hooks)
    variables = [vendor.traces.HOOKLESS_VARIABLE for vendor in vendors()]
    return is_hooked or (isinstance(env, list) and any(one and one in env for one in variables))
