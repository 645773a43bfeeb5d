# SPDX-License-Identifier: Apache-2.0
"""The plan and the results as text: what was found, each change as a diff, the undo."""

from __future__ import annotations

from gpuhook.engines.report import configure_text
from gpuhook.errors import printable
from gpuhook.setup import gpu_container
from gpuhook.setup.node_commands import WRITES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.setup.setup_facts import SetupFacts
    from gpuhook.setup.setup_plan import EngineStep, SetupPlan
    from gpuhook.setup.setup_run import SetupResult

CHART = (
    "this is a node of Kubernetes: setup registers only the runtime. The Helm chart configures all "
    "nodes and has the device plugin: docs/start/kubernetes.md"
)
_MAX_LINE = 4096
_WIDTH = 12
ENDS = "a restart stops the containers of {engine}"


def fact_lines(facts: SetupFacts) -> Iterator[str]:
    """Yield what was found on the node."""
    yield "Node"
    yield _row("driver", f"{facts.driver or 'unknown'}; {', '.join(facts.gpus) or 'no GPU'}")
    engines = [one.shown + (" (needs root)" if one.needs_root else "") for one in facts.engines]
    yield _row("engines", ", ".join(engines) or "none")
    for one in facts.nvidia or ("none of its parts is here",):
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


def undo_lines(commands: list[str]) -> Iterator[str]:
    """Yield the commands that undo the steps."""
    if commands:
        yield "Undo"
        yield from (f"  {one}" for one in commands)


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
    if not step.planned.writes:
        return f"already configured (route {options.route})"
    if options.route == "wrapper":
        return f"add the runtime {options.name}, which is {options.program}"
    return f"configure the route {options.route}"


def _details(step: EngineStep) -> Iterator[str]:
    """Yield the diff, and below it the notes and the restart."""
    yield from configure_text.difference_text(step.planned.writes).splitlines()
    sentences = [step.note] if step.note else []
    yield from (f"     {one}" for one in [*sentences, *step.planned.notes])
    if step.obstacle:
        yield f"     {step.obstacle}"
    elif step.way is not None and not step.way.text:
        yield f"     {step.engine} is not running: it reads the files at its next start"
    elif step.is_restart:
        how = "restart" if step.restarts else "no restart (use --restart): then"
        does = f"{how} {step.engine}" if step.restarts else f"{how} {step.engine} has not read it"
        yield f"     {does}"
    elif step.way is not None:
        yield f"     reload {step.engine}, which stops nothing"


def _proof(step: EngineStep, facts: SetupFacts) -> str:
    if facts.device is None or not facts.smi:
        return f"none: {gpu_container.no_container(step, facts)}"
    if step.engine in gpu_container.WITH_IMAGES and step.is_pending:
        return f"none: {step.engine} does not read its configuration before a restart"
    by = step.options.program if step.engine not in gpu_container.WITH_IMAGES else step.engine
    return f"run {' '.join(gpu_container.PROGRAM)} by {by} with GPU {facts.device.name}"
