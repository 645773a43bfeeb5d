# SPDX-License-Identifier: Apache-2.0
"""The context of a plan, and the plan with its warnings logged and stale specs refreshed.

The plan itself is request/plan.py, which logs and writes nothing. A container has one plan for each
vendor whose devices it requests, each with its own context, so that a vendor's trouble does
not affect a container without its devices.
"""

from __future__ import annotations

from gpuhook.apply.spec import config_json
from gpuhook.cdi.hot import registry
from gpuhook.errors import GpuhookError
from gpuhook.request import plan
from gpuhook.vendors.hot import plan_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from gpuhook.apply.rootfs.hook_args import Jobs
    from gpuhook.cdi.hot.registry import SpecCompiler
    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.parse import Source
    from gpuhook.request.plan import Injection
    from gpuhook.vendors.interface import VendorNode

    T = TypeVar("T")


class VendorContext:
    """The node's settings, the node with one vendor's devices, and the log of warnings.

    `refresh(is_needed)` writes stale specs again and returns why that failed, or ""; it is None for
    a program that only reads.
    """

    __slots__ = ("log", "node", "refresh", "settings")

    def __init__(
        self,
        settings: Settings,
        node: VendorNode,
        log: EngineLog,
        refresh: Callable[[Callable[[], bool]], str] | None = None,
    ) -> None:
        self.settings = settings
        self.node = node
        self.log = log
        self.refresh = refresh


class PlanContext(VendorContext):
    """The context of the first vendor; `further` are those of the others that a plan considers."""

    __slots__ = ("further",)

    def __init__(
        self,
        settings: Settings,
        node: VendorNode,
        log: EngineLog,
        refresh: Callable[[Callable[[], bool]], str] | None = None,
        others: Sequence[VendorNode] = (),
    ) -> None:
        """Take the first vendor's node, and `others`, whose names it leaves to them."""
        super().__init__(settings, node, log, refresh)
        self.further = [VendorContext(settings, one, log, refresh) for one in others]
        if others:
            node.others = others

    def covered(self, nodes: Collection[str]) -> frozenset[str]:
        """Return the names of the devices of all vendors that have nodes, all among `nodes`."""
        return frozenset().union(*(one.node.covered(nodes) for one in self.every()))

    def every(self) -> list[VendorContext]:
        """Return the contexts of all vendors, the first one first."""
        return [self, *self.further]


def context_of(
    settings: Settings,
    log: EngineLog,
    compile_spec: SpecCompiler,
    refresh: Callable[[Callable[[], bool]], str] | None = None,
    *,
    has_others: bool = False,
) -> PlanContext:
    """Return the context of plans on this node; `compile_spec(*paths)` compiles YAML specs.

    Unless `has_others`, which prefilter.FURTHER decides, there are only plans of the first vendor.
    """
    load = registry.reader(settings.spec_dirs, compile_spec)
    others = plan_nodes.further_nodes(load) if has_others else ()
    return PlanContext(settings, plan_nodes.first_node(settings, load), log, refresh, others)


def sources_logged(
    spec: dict[str, Any], context: PlanContext
) -> list[tuple[VendorContext, Source]]:
    """Return the source of the request to each vendor that a container requests devices of.

    Raises as source_logged() does.
    """
    found = ((one, source_logged(spec, one)) for one in context.every())
    return [(one, source) for one, source in found if source is not None]


def plans_logged(
    spec: dict[str, Any], requests: Iterable[tuple[VendorContext, Source]]
) -> list[tuple[VendorContext, Injection]]:
    """Return the plan of each request that gives the container something.

    Raises as plan_logged() does: a container gets all of its requests or does not start.
    """
    found = ((context, plan_logged(spec, source, context)) for context, source in requests)
    return [(context, injection) for context, injection in found if injection.is_given]


def requested_names(requests: Iterable[tuple[VendorContext, Source]]) -> list[str]:
    """Return the requested names for the ledger, those of further vendors with their kind."""
    return [name for one, source in requests for name in in_ledger(source.names, one)]


def identities(contexts: Iterable[VendorContext], nodes: Collection[str]) -> dict[str, str]:
    """Return which device each of these nodes is of, for the ledger."""
    found = [one.node.identities(nodes) for one in contexts]
    return {path: device for part in found for path, device in part.items()}


def in_ledger(names: Sequence[str], context: VendorContext) -> list[str]:
    """Return names as the ledger has them: those of further vendors with their kind."""
    kind = "" if isinstance(context, PlanContext) else context.node.kind + "="
    return [name if "=" in name else kind + name for name in names]


def source_logged(spec: dict[str, Any], context: VendorContext) -> Source | None:
    """Return the source of a container's request that applies, see plan.request_source().

    Raises also as config_json.require_unambiguous() does for a container that requests something.
    """
    warnings: list[GpuhookError] = []
    try:
        source = plan.request_source(spec, context.settings, context.node, warnings)
    finally:
        log_warnings(warnings, context.log)
    if source is not None:
        config_json.require_unambiguous(spec)
    return source


def plan_logged(spec: dict[str, Any], source: Source, context: VendorContext) -> Injection:
    """Return the plan of a container that requests `source`.

    Stale specs are refreshed first if the settings say so. Raises the faults of plan.plan().
    """

    def work() -> Injection:
        warnings: list[GpuhookError] = []
        try:
            return plan.plan(spec, context.settings, context.node, source, warnings)
        finally:
            log_warnings(warnings, context.log)

    return with_fresh_specs(work, context)


def with_fresh_specs(work: Callable[[], T], context: VendorContext) -> T:
    """Return what `work` returns; if stale specs made it fail, refresh them and try again.

    `work` changes nothing, and is called a few times.
    """
    try:
        return work()
    except GpuhookError as error:
        from gpuhook.entry import spec_refresh  # hardly ever

        if not spec_refresh.has_refreshed(error, work, context):
            raise
    return work()


def enforce_requirements(
    required: Mapping[str, str], jobs: Sequence[Jobs], nodes: Iterable[str], context: VendorContext
) -> None:
    """Raise GH1043 to GH1046 if a container's requirements are not met; log unknown ones.

    `required` are its plan.requirements(), `jobs` those of its devices, `nodes` the paths of its
    device nodes.
    """
    if required:
        log_warnings(context.node.judge_requirements(required, jobs, nodes), context.log)


def log_warnings(warnings: Iterable[GpuhookError], log: EngineLog) -> None:
    """Log warnings, also those before a fault."""
    for warning in warnings:
        log.warning(warning)
