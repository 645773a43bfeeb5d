# SPDX-License-Identifier: Apache-2.0
"""A container in question put to the very code that the runtime wrapper runs, and what came of it.

Nothing is written: config.json is edited in memory, its root file system only rehearsed.
"""

from __future__ import annotations

import copy
import os
import shutil
import sys
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from gpuhook.apply.spec import change_record
from gpuhook.entry import oci_command, plan_context, runtime
from gpuhook.entry.create import WRAPPER, Create, Edited
from gpuhook.errors import GpuhookError, fault
from gpuhook.explain import manifest_questions
from gpuhook.explain import question as kinds
from gpuhook.explain.dry_run_rootfs import RootfsDryRun
from gpuhook.explain.trace import requirement_trace as requirement_facts
from gpuhook.host.hot import fastjson, state
from gpuhook.request import parse, plan, policy
from gpuhook.vendors.nvidia.hot.rootfs import hook_args

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.apply.live.live_files import FileChange
    from gpuhook.explain.node_context import Ground
    from gpuhook.explain.question import Question
    from gpuhook.request.policy import Verdict
    from gpuhook.usage.injection_route import InjectedDevices

LAUNCHER = "gpuhook-runtime"
_ROOT = "rootfs"
_OTHER_VENDOR = "GH1009"
_HOOK = "/usr/bin/gpuhook-hook"  # of a node that is not this one


@dataclass(frozen=True, slots=True)
class SimulatedAnswer:
    """What becomes of a container: config.json `before` and `after`, and how it came to that.

    `fault` is why it would not start; `after` is as `before` then. `asked` is the spec as it asks,
    what an earlier create had given taken back. `changes` are those of the root file system. `held`
    is what a running container has, unless gpuhook-runtime would give it its GPUs.
    """

    question: Question
    before: dict[str, Any]
    after: dict[str, Any]
    asked: dict[str, Any]
    edited: Edited
    verdict: Verdict
    changes: tuple[FileChange, ...] = ()
    warnings: tuple[GpuhookError, ...] = ()
    fault: GpuhookError | None = None
    held: InjectedDevices | None = None

    @property
    def has_engines_edits(self) -> bool:
        """Whether its engine has applied a CDI spec of ours already."""
        return bool(hook_args.hooks_in(self.before))


def simulate(question: Question, ground: Ground) -> SimulatedAnswer:
    """Return what the wrapper would make of the container in question on this ground."""
    before = copy.deepcopy(question.spec)
    asked = copy.deepcopy(question.spec)
    change_record.take_back(asked)
    heard = len(ground.heard.warnings)
    after, edited, changes, trouble = _edited(question, ground)
    trouble = trouble or _refused_by_hook(question, asked, ground)
    return SimulatedAnswer(
        question=question,
        before=before,
        after=before if trouble else after,
        asked=asked,
        edited=edited,
        verdict=_verdict(asked, ground),
        changes=tuple(changes),
        warnings=tuple(ground.heard.warnings[heard:]),
        fault=trouble,
        held=None if trouble or edited.route == WRAPPER else _held(question, ground),
    )


def _held(question: Question, ground: Ground) -> InjectedDevices | None:
    """Return what a running container of this node has of GPUs, None if that is nothing."""
    held = question.held
    return held if held and held.is_holder and held.nodes and ground.is_here else None


def _edited(
    question: Question, ground: Ground
) -> tuple[dict[str, Any], Edited, list[FileChange], GpuhookError | None]:
    """Return (config.json after, what was done, changes of the root, why it would not start)."""
    spec = copy.deepcopy(question.spec)
    if not _may_ask(question, ground):
        return spec, Edited(), [], None
    root = spec.get("root")
    with TemporaryDirectory(prefix="gpuhook-explain-") as place:
        command, work = oci_command.Command(), RootfsDryRun()
        command.bundle = question.bundle
        if _is_rootless(question):
            command.bundle, spec["root"] = place, {"path": _ROOT}
            os.mkdir(os.path.join(place, _ROOT))
            work = RootfsDryRun(shown_as=_shown(question))
        hook = "" if ground.is_here else _HOOK
        create = Create(command, ground.context, _launcher(), ground.trouble, work, hook=hook)
        edited, trouble = Edited(), None
        try:
            edited = create.edited(spec, _low_level(ground))
        except GpuhookError as error:
            trouble = error
        except OSError as error:  # as gpuhook-runtime says it
            where = error.filename or error.filename2 or "the host"
            trouble = fault("GH1490", where=where, reason=error.strerror or str(error))
        except Exception as error:  # as gpuhook-runtime takes it
            trouble = runtime.unforeseen(error)
    if root is None:
        spec.pop("root", None)
    else:
        spec["root"] = root
    return spec, edited, work.changes, trouble


def _refused_by_hook(
    question: Question, spec: dict[str, Any], ground: Ground
) -> GpuhookError | None:
    """Return why the hook of a CDI spec, which the engine applies, would refuse the container."""
    if not manifest_questions.engines_devices(question):
        return None
    nodes = requirement_facts.nodes_of(manifest_questions.beside(question), ground.node)
    context = ground.context
    try:
        required = plan.requirements(spec, context.settings, context.node)
        plan_context.enforce_requirements(required, [], nodes, context)
    except GpuhookError as error:
        return error
    return None


def _may_ask(question: Question, ground: Ground) -> bool:
    marks = runtime.own_marks(ground.context.settings)
    return runtime.may_ask(question.raw or fastjson.dumps(question.spec), marks)


def _is_rootless(question: Question) -> bool:
    """Return whether an empty root file system is to stand for one that is not here."""
    return not question.has_root and question.kind != kinds.BUNDLE


def _shown(question: Question) -> str:
    root = question.spec.get("root")
    path = root.get("path") if isinstance(root, dict) else None
    return os.path.join(question.bundle or "/BUNDLE", path if isinstance(path, str) else _ROOT)


def _launcher() -> str:
    """Return the path of our runtime where it is installed, or would be: beside us first."""
    own = os.path.dirname(os.path.realpath(sys.argv[0]))
    path = os.pathsep.join([own, os.environ.get("PATH", ""), *state.PROGRAM_DIRS])
    return shutil.which(LAUNCHER, path=path) or f"/usr/bin/{LAUNCHER}"


def _low_level(ground: Ground) -> str:
    try:
        return runtime.find_low_level(ground.context.settings.low_level_runtimes, _launcher())
    except GpuhookError:
        return "runc"


def _verdict(asked: dict[str, Any], ground: Ground) -> Verdict:
    """Return the verdict over the sources; an empty one where they cannot be read."""
    try:
        return plan.verdict(asked, ground.context.settings, ground.context.node)
    except GpuhookError:
        return policy.Verdict()


def sources(verdict: Verdict, trouble: GpuhookError | None) -> Iterator[dict[str, Any]]:
    """Yield each source of a verdict with what came of it, in the order of precedence.

    `trouble` is why the container would not start: policy refuses the chosen source by GH1009.
    """
    order = {parse.ANNOTATIONS: 0, parse.MOUNTS: 1, parse.POD_ANNOTATIONS: 2}
    refusal = trouble.code if trouble is not None and trouble.code == _OTHER_VENDOR else ""
    result = "refused" if refusal else "won"
    chosen = [(verdict.chosen, result, refusal)] if verdict.chosen else []
    beaten = [
        (source, "beaten", f"{verdict.chosen.where} comes first")
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
