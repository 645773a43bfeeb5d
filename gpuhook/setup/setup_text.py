# SPDX-License-Identifier: Apache-2.0
"""The plan and the results as text: what was found, each change as a diff, the undo."""

from __future__ import annotations

from gpuhook.engines.configure import changeset, configure_engine
from gpuhook.engines.report import configure_text
from gpuhook.errors import printable
from gpuhook.setup import gpu_container
from gpuhook.setup.engine_program import WITH_IMAGES
from gpuhook.setup.node_commands import WRITES
from gpuhook.setup.setup_plan import NOTHING_NEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.setup.setup_facts import SetupFacts
    from gpuhook.setup.setup_plan import EngineStep, SetupPlan, Undo
    from gpuhook.setup.setup_run import SetupResult

CHART = (
    "this is a node of Kubernetes: setup registers only the runtime. The Helm chart configures all "
    "nodes and has the device plugin: docs/start/kubernetes.md"
)
_MAX_LINE = 4096
_WIDTH = 12


def fact_lines(facts: SetupFacts) -> Iterator[str]:
    """Yield what was found on the node."""
    yield "Node"
    yield _row("driver", f"{facts.driver or 'unknown'}; {', '.join(facts.gpus) or 'no GPU'}")
    engines = [one.shown + (" (needs root)" if one.needs_root else "") for one in facts.engines]
    yield _row("engines", ", ".join(engines) or "none")
    for one in facts.nvidia or ("no part of its stack",):
        yield _row("NVIDIA", one)
    yield _row("Kubernetes", f"kubelet in {facts.kubernetes}" if facts.kubernetes else "no kubelet")


def plan_lines(plan: SetupPlan) -> Iterator[str]:
    """Yield the steps, with the diff of each engine's files as `configure --dry-run` prints it."""
    yield "Plan"
    for number, lines in enumerate(_steps(plan), 1):
        first, *rest = lines
        yield f"  {number}. {first}"
        yield from rest
    if plan.facts.kubernetes:
        yield f"  {CHART}"


def undo_lines(undo: Undo) -> Iterator[str]:
    """Yield the commands that undo the steps, and the notes as comments of a shell."""
    if undo.commands:
        yield "Undo"
        yield from (f"  {one}" for one in undo.commands)
        yield from (f"  # {one}" for one in undo.notes)


def result_lines(result: SetupResult) -> Iterator[str]:
    """Yield the state of each step that ran, and what it printed."""
    yield "Result"
    for one in result.steps:
        yield f"  {one.title}: {one.state}"
        lines = one.lines if one.error is None else (f"{one.error.code}: {one.error.message}",)
        yield from (f"    {printable(line, _MAX_LINE)}" for line in lines if line)


def _row(name: str, text: str) -> str:
    return printable(f"  {name:<{_WIDTH}}{text}", _MAX_LINE)


def _steps(plan: SetupPlan) -> Iterator[list[str]]:
    """Yield the lines of each step, its title first."""
    specs = [
        f"write {one.path}: {one.reason}" if one.state == WRITES else f"{one.path}: {one.reason}"
        for one in plan.specs
    ]
    contents = [f"     {one.contents}" for one in plan.specs if one.contents]
    yield [f"CDI spec: {'; '.join(specs) or 'this node needs none'}", *contents]
    for step in plan.engines:
        yield [f"{step.engine}: {_change(step)}", *_details(step)]
    yield ["doctor: examine the driver, the GPUs, the specs and these engines"]
    for step in plan.engines:
        yield [f"container of {step.engine}: {_proof(step, plan.facts)}"]


def _change(step: EngineStep) -> str:
    options = step.options
    if step.needs_nothing:
        return NOTHING_NEEDED
    if not step.planned.writes:
        return "already configured"
    if options.route == "wrapper":
        return f"add the runtime {' and '.join(options.names)}, which is {options.program}"
    return f"configure the route {options.route}"


def _details(step: EngineStep) -> Iterator[str]:
    """Yield the diff, and below it the notes and the restart."""
    yield from configure_text.difference_text(step.planned.writes).splitlines()
    notes = step.planned.notes if step.planned.writes else ()
    restart = changeset.restart_note(step.planned.service)
    for one in (step.note, *(one for one in notes if one != restart), _restart(step)):
        if one:
            yield f"     {one}"


def _restart(step: EngineStep) -> str:
    """Return what makes the engine read the files, "" if nothing is needed."""
    if step.obstacle:
        return f"setup cannot restart {step.engine}, because {step.obstacle}: restart it yourself"
    if step.way is None:
        return ""
    if not step.way.text:
        return configure_engine.NOT_RUNNING.format(engine=step.engine)
    if not step.is_restart:
        return f"reload {step.engine}: its containers are not affected"
    does = "restart" if step.restarts else "do not restart"
    ends = ": a restart stops its containers" if step.ends_containers else ""
    more = "" if step.restarts else f"; {step.engine} reads the files when it is restarted"
    return f"{does} {step.engine}{ends}{more}"


def _proof(step: EngineStep, facts: SetupFacts) -> str:
    reason = gpu_container.not_provable(step, facts)
    if reason:
        return f"none: {reason}"
    by = step.engine if step.engine in WITH_IMAGES else step.options.program
    runs = [f"{' '.join(one.way.program)} with GPU {one.name}" for one in facts.devices]
    return f"{by} runs {' and '.join(runs)}"
