# SPDX-License-Identifier: Apache-2.0
"""`gpuhook setup`: runs the commands for a node in their order, and proves the result."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import click

from gpuhook.cli.engines import configure_options, setup_commands
from gpuhook.cli.options import command_sections, parameters
from gpuhook.engines.configure import engine_plan
from gpuhook.errors import GpuhookError, fault
from gpuhook.host import console
from gpuhook.host.hot import state
from gpuhook.install.runtime_names import names_of_gpus
from gpuhook.setup import (
    engine_program,
    setup_document,
    setup_facts,
    setup_plan,
    setup_questions,
    setup_run,
    setup_text,
)
from gpuhook.setup.setup_plan import BESIDE, RuntimeChoice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.engines.configure.host_files import Host
    from gpuhook.setup.node_commands import NodeCommands
    from gpuhook.setup.setup_facts import EngineFacts
    from gpuhook.setup.setup_plan import EngineStep, SetupPlan, Undo
    from gpuhook.setup.setup_run import SetupResult

_EXAMPLES = """
\b
Examples:
  gpuhook setup
  gpuhook setup --dry-run
  gpuhook setup --yes --engine docker --restart
  gpuhook setup --yes --take-over -o json
"""


@dataclass(frozen=True, slots=True)
class _Answers:
    """The options; questions to a terminal fill in what they leave open."""

    engines: tuple[str, ...]
    choice: RuntimeChoice | None
    restarts: bool
    is_asked: bool


@click.command(cls=command_sections.SectionedCommand, epilog=_EXAMPLES)
@click.option(
    "--engine",
    "engines",
    type=parameters.NearestChoice(engine_plan.ENGINES),
    multiple=True,
    help="The engine to set up; repeatable. Default: the kubelet's engine, else all engines.",
)
@configure_options.runtime_names(
    f"Default: those of the vendors of this node's GPUs, or {BESIDE} if another program has one",
)
@click.option(
    "--take-over",
    "takes_over",
    is_flag=True,
    help="Replace another program's runtime of that name; undo restores it.",
)
@click.option(
    "--restart",
    "restarts",
    is_flag=True,
    help="Restart engines that read their configuration only when they start. This stops the "
    "containers of Docker, unless daemon.json has live-restore.",
)
@click.option("-y", "--yes", "is_yes", is_flag=True, help="Ask nothing, and carry out the plan.")
@parameters.dry_run
@parameters.output("text", "json", "yaml")
@click.pass_context
def setup(
    ctx: click.Context,
    /,
    *,
    engines: tuple[str, ...],
    names: tuple[str, ...],
    takes_over: bool,
    restarts: bool,
    is_yes: bool,
    is_dry: bool,
    output: str,
) -> None:
    """Set up this node step by step: show the plan, carry it out, prove it with a container.

    setup examines the drivers, the container engines, NVIDIA's stack and Kubernetes. The plan has
    each change as a diff: the CDI spec of `gpuhook refresh`, and the files of `gpuhook configure`.
    Afterwards doctor examines the node, and a container of each engine runs nvidia-smi with one
    GPU, or lists the device nodes of one AMD GPU; its image is made of files of this host, and
    is removed. setup prints the commands that undo it.

    On a terminal, setup asks before it changes anything. Without a terminal it needs --yes or
    --dry-run. Steps that are already done are not repeated. An existing runtime of another program
    is kept, unless you choose otherwise, and no engine is restarted without --restart or a yes.

    The exit status is 0 if the plan was carried out, 1 if a step has failed or you declined, and 2
    for wrong usage.
    """
    choice = None
    if names or takes_over:
        choice = RuntimeChoice(names or names_of_gpus(state.host_root()), takes_over)
    is_asked = not (is_yes or is_dry) and output == console.TEXT and sys.stdin.isatty()
    commands = setup_commands.SetupCommands(ctx.find_root())
    with console.progress("looking at the node"):
        facts = setup_facts.setup_facts(commands)
    if output == console.TEXT:
        _print(setup_text.fact_lines(facts))
    answers = _Answers(engines, choice, restarts, is_asked)
    with _nothing_changed():
        plan = setup_plan.setup_plan(facts, _steps(facts, commands, answers), commands.host)
        undo = setup_plan.undo_of_steps(plan, plan.specs, plan.engines)
        does = is_yes or is_asked
        _print_plan(plan, undo, output, is_last=is_dry or not does)
        if is_asked and plan.has_changes and not setup_questions.ask_consent():
            raise click.Abort
    if is_dry:
        return
    if not does:
        raise fault("GH2114")
    result = setup_run.carry_out(plan, commands, _announce)
    _finish(plan, result, commands.host, output)


@contextmanager
def _nothing_changed() -> Iterator[None]:
    """Print that nothing was changed if the user ends the questions."""
    try:
        yield
    except click.Abort:
        console.say("nothing was changed")
        raise


def _print_plan(plan: SetupPlan, undo: Undo, output: str, *, is_last: bool) -> None:
    """Print the plan; a document and the undo only if no result follows."""
    if output == console.TEXT:
        _print(setup_text.plan_lines(plan))
    if not is_last:
        return
    if output == console.TEXT:
        _print(setup_text.undo_lines(undo))
    else:
        console.document(setup_document.setup_document(plan, None, undo), output)


def _announce(title: str) -> None:
    console.say(f"{title} ...")


def _steps(
    facts: setup_facts.SetupFacts, commands: NodeCommands, answers: _Answers
) -> Iterator[EngineStep]:
    """Yield the step of each engine, with the answers of the user."""
    engines = setup_plan.chosen_engines(facts, answers.engines)
    if answers.is_asked and not answers.engines:
        engines = setup_questions.ask_engines(engines)
    for engine in engines:
        step = _step(engine, commands, answers)
        if step is None:
            continue
        if answers.is_asked and step.is_restart and not step.restarts:
            running = engine_program.engine_program(step.where, commands.host).running_containers()
            step = replace(step, restarts=setup_questions.ask_restart(step, running))
        yield step


def _step(engine: EngineFacts, commands: NodeCommands, answers: _Answers) -> EngineStep | None:
    """Return the step of an engine, None to skip it; another program's runtime is a question."""
    step_of = partial(setup_plan.engine_step, engine, commands, restarts=answers.restarts)
    try:
        return step_of(answers.choice)
    except GpuhookError as error:
        if answers.choice is not None or error.code != setup_plan.IN_USE:
            raise
        message = error.message
    choice: RuntimeChoice | None = RuntimeChoice((BESIDE,))
    if answers.is_asked:
        choice = setup_questions.ask_runtime(engine, message)
    if choice is None:
        return None
    note = "" if choice.takes_over else f"{message}: it is kept (--take-over replaces it)"
    return replace(step_of(choice), note=note)


def _finish(plan: SetupPlan, result: SetupResult, host: Host, output: str) -> None:
    """Print the results and the undo; raise the fault of the step that failed."""
    ran = [one for one in plan.engines if _is_configured(one, result)]
    specs = [one for one in plan.specs if host.status(one.path)]
    undo = setup_plan.undo_of_steps(plan, specs, ran)
    if output == console.TEXT:
        _print(setup_text.result_lines(result))
        _print(setup_text.undo_lines(undo))
    else:
        console.document(setup_document.setup_document(plan, result, undo), output)
    if result.is_interrupted:
        raise click.Abort
    if result.error is not None:
        raise result.error


def _is_configured(step: EngineStep, result: SetupResult) -> bool:
    states = {(one.step, one.engine): one.state for one in result.steps}
    return states.get((setup_run.ENGINE, step.engine)) in (setup_run.DONE, setup_run.UNCHANGED)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
