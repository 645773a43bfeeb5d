# SPDX-License-Identifier: Apache-2.0
"""The context of a plan, and the plan with its warnings logged and stale specs refreshed.

The plan itself is request/plan.py, which logs and writes nothing.
"""

from __future__ import annotations

from gpuhook.apply.spec import config_json
from gpuhook.errors import GpuhookError
from gpuhook.request import plan
from gpuhook.vendors.nvidia.hot.nvidia_node import NvidiaNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any, TypeVar

    from gpuhook.host.hot.engine_log import EngineLog
    from gpuhook.host.hot.settings import Settings
    from gpuhook.request.parse import Source
    from gpuhook.request.plan import Injection
    from gpuhook.vendors.nvidia.hot.rootfs.hook_args import Jobs

    T = TypeVar("T")


class PlanContext:
    """The node's settings, the node, and the log of warnings.

    `refresh(is_needed)` writes stale specs again and returns why that failed, or ""; it is None for
    a program that only reads.
    """

    __slots__ = ("log", "node", "refresh", "settings")

    def __init__(
        self,
        settings: Settings,
        node: NvidiaNode,
        log: EngineLog,
        refresh: Callable[[Callable[[], bool]], str] | None = None,
    ) -> None:
        self.settings = settings
        self.node = node
        self.log = log
        self.refresh = refresh


def context_of(
    settings: Settings,
    log: EngineLog,
    compile_spec: Callable[[str], None],
    refresh: Callable[[Callable[[], bool]], str] | None = None,
) -> PlanContext:
    """Return the context of plans on this node; `compile_spec(path)` compiles a YAML spec."""
    return PlanContext(settings, NvidiaNode(settings, compile_spec), log, refresh)


def source_logged(spec: dict[str, Any], context: PlanContext) -> Source | None:
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


def plan_logged(spec: dict[str, Any], source: Source, context: PlanContext) -> Injection:
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


def with_fresh_specs(work: Callable[[], T], context: PlanContext) -> T:
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
    required: Mapping[str, str], jobs: Sequence[Jobs], nodes: Iterable[str], context: PlanContext
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
