# SPDX-License-Identifier: Apache-2.0
"""Runs the code of the runtime wrapper for a container, without writing anything.

config.json is edited in memory, and the changes of the root file system are only recorded.
"""

from __future__ import annotations

import copy
import difflib
import json
import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any

from gpuhook.apply.rootfs import hook_args
from gpuhook.apply.spec import change_record
from gpuhook.entry import oci_command, plan_context, runtime
from gpuhook.entry.create import WRAPPER, Create, Edited
from gpuhook.errors import GpuhookError, printable
from gpuhook.explain import question as kinds
from gpuhook.explain.dry_run_rootfs import EMPTY, RootfsDryRun
from gpuhook.explain.trace import requirement_trace
from gpuhook.host.hot import fastjson, state
from gpuhook.host.hot.engine_log import as_fault
from gpuhook.request import parse, plan, policy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.apply.live.live_files import FileChange
    from gpuhook.entry.plan_context import VendorContext
    from gpuhook.explain.node_context import ExplainedNode
    from gpuhook.explain.question import Question
    from gpuhook.request.policy import Verdict
    from gpuhook.usage.injection_route import InjectedDevices

LAUNCHER = "gpuhook-runtime"
_ROOT = "rootfs"
_OTHER_VENDOR = "GH1009"
_HOOK = "/usr/bin/gpuhook-hook"  # of a node that is not this one


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """The result for a container: config.json `before` and `after`, and the steps between.

    `fault` is why it would not start; then `after` equals `before`. `asked` is the spec with its
    request, without the edits of an earlier create. `changes` are in the root file system. `held`
    are the devices of a running container, unless gpuhook-runtime would add them. `judged` has the
    verdict on the request of each vendor's devices, the first vendor's first.
    """

    question: Question
    before: dict[str, Any]
    after: dict[str, Any]
    asked: dict[str, Any]
    edited: Edited
    judged: tuple[tuple[VendorContext, Verdict], ...]
    changes: tuple[FileChange, ...] = ()
    warnings: tuple[GpuhookError, ...] = ()
    fault: GpuhookError | None = None
    held: InjectedDevices | None = None

    @property
    def verdict(self) -> Verdict:
        """The verdict on the request of the first vendor's devices."""
        return self.judged[0][1]

    @property
    def has_engines_edits(self) -> bool:
        """Whether its engine has already applied a CDI spec of gpuhook."""
        return bool(hook_args.hooks_in(self.before))


def simulate(question: Question, target: ExplainedNode) -> SimulatedAnswer:
    """Return the result of the wrapper for the container on this node."""
    before = copy.deepcopy(question.spec)
    asked = copy.deepcopy(question.spec)
    change_record.take_back(asked)
    logged = len(target.context.log.warnings)
    after, edited, changes, trouble = _edited(question, target)
    trouble = trouble or _refused_by_hook(question, asked, target)
    return SimulatedAnswer(
        question=question,
        before=before,
        after=before if trouble else after,
        asked=asked,
        edited=edited,
        judged=tuple((one, _verdict(asked, one)) for one in target.context.every()),
        changes=tuple(changes),
        warnings=tuple(target.context.log.warnings[logged:]),
        fault=trouble,
        held=None if trouble or edited.route == WRAPPER else _held_devices(question, target),
    )


def _held_devices(question: Question, target: ExplainedNode) -> InjectedDevices | None:
    """Return the GPUs of a running container of this node, None without any."""
    held = question.held
    return held if held and held.is_holder and held.nodes and target.is_here else None


def _edited(
    question: Question, target: ExplainedNode
) -> tuple[dict[str, Any], Edited, list[FileChange], GpuhookError | None]:
    """Return (config.json after, the wrapper's result, changes of the root, the fault)."""
    spec = copy.deepcopy(question.spec)
    if not _may_request(question, target):
        return spec, Edited(), [], None
    root = spec.get("root")
    command, work = oci_command.Command(), RootfsDryRun()
    command.bundle = question.bundle
    if not question.has_root and question.kind != kinds.BUNDLE:  # an empty one instead
        spec["root"] = {"path": EMPTY}
        path = kinds.root_path(question.spec) or _ROOT
        work = RootfsDryRun(empty=os.path.join(question.bundle or "/BUNDLE", path))
    hook = "" if target.is_here else _HOOK
    create = Create(command, target.context, _launcher(), target.settings_error, work, hook=hook)
    edited, trouble = Edited(), None
    try:
        edited = create.edited(spec, _low_level(target))
    except Exception as error:  # as gpuhook-runtime reports it
        trouble = as_fault(error, "the host")
    if root is None:
        spec.pop("root", None)
    else:
        spec["root"] = root
    return spec, edited, work.changes, trouble


def _refused_by_hook(
    question: Question, spec: dict[str, Any], target: ExplainedNode
) -> GpuhookError | None:
    """Return why the hook of a CDI spec that the engine applies would refuse the container."""
    if not any(map(target.context.node.serves, question.plugin.cdi_devices)):
        return None
    nodes = requirement_trace.gpu_nodes(question.plugin.direct_devices, target.devices)
    context = target.context
    try:
        required = plan.requirements(spec, context.settings, context.node)
        plan_context.enforce_requirements(required, [], nodes, context)
    except GpuhookError as error:
        return error
    return None


def _may_request(question: Question, target: ExplainedNode) -> bool:
    marks = runtime.own_marks(target.context.settings)
    return runtime.may_ask(question.raw or fastjson.dumps(question.spec), marks)


def _launcher() -> str:
    """Return the path of gpuhook-runtime, installed or not; next to this program first."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    path = os.pathsep.join([own, os.environ.get("PATH", ""), *state.PROGRAM_DIRS])
    return shutil.which(LAUNCHER, path=path) or f"/usr/bin/{LAUNCHER}"


def _low_level(target: ExplainedNode) -> str:
    try:
        return runtime.find_low_level(target.context.settings.low_level_runtimes, _launcher())
    except GpuhookError:
        return "runc"


def _verdict(asked: dict[str, Any], context: VendorContext) -> Verdict:
    """Return the verdict on the sources, an empty one if they cannot be read."""
    try:
        return plan.verdict(asked, context.settings, context.node)
    except GpuhookError:
        return policy.Verdict()


def sources(verdict: Verdict, trouble: GpuhookError | None) -> Iterator[dict[str, Any]]:
    """Yield each source of a verdict with its result, in the order of precedence.

    `trouble` is why the container would not start: GH1009 refuses the chosen source.
    """
    order = {parse.ANNOTATIONS: 0, parse.MOUNTS: 1, parse.POD_ANNOTATIONS: 2}
    refusal = trouble.code if trouble is not None and trouble.code == _OTHER_VENDOR else ""
    result = "refused" if refusal else "won"
    chosen = [(verdict.chosen, result, refusal)] if verdict.chosen else []
    beaten = [
        (source, "beaten", f"{verdict.chosen.where} takes precedence")
        for source in verdict.beaten
        if verdict.chosen
    ]
    refused = [(source, "refused", reason) for source, reason in verdict.refused]
    found = sorted([*chosen, *beaten, *refused], key=lambda one: order.get(one[0].kind, 3))
    for source, outcome, reason in found:
        yield {
            "kind": source.kind,
            "where": source.where,
            "names": source.names,
            "origin": source.origin,
            "result": outcome,
            "reason": reason,
        }


_MAX_LINE = 1 << 16


def difference(answer: SimulatedAnswer) -> Iterator[str]:
    """Yield the lines of a unified diff of config.json, none if nothing changes."""
    name = answer.question.where
    for line in difflib.unified_diff(
        _pretty(answer.before),
        _pretty(answer.after),
        f"{name} (before)",
        f"{name} (after)",
        lineterm="",
    ):
        yield printable(line, _MAX_LINE)


def _pretty(spec: object) -> list[str]:
    return json.dumps(spec, indent=2).splitlines()
