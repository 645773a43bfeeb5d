# SPDX-License-Identifier: Apache-2.0
"""The run of a plan: the commands in their order, then doctor and a container as proof."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from gpuhook.doctor import doctor_text
from gpuhook.doctor.check_list import checks
from gpuhook.doctor.examination import examine
from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.engines.report import configure_text
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.error_text import worded
from gpuhook.host.interrupt import Interruptible
from gpuhook.node_facts.check import FAILED
from gpuhook.setup import gpu_container, minimal_root
from gpuhook.setup.engine_program import WITH_IMAGES, engine_program
from gpuhook.setup.node_commands import WRITES
from gpuhook.setup.setup_plan import NOTHING_NEEDED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.engines.configure.configure_engine import EngineResult
    from gpuhook.engines.configure.engine_restart import How
    from gpuhook.setup.node_commands import NodeCommands
    from gpuhook.setup.setup_plan import EngineStep, SetupPlan

DONE, UNCHANGED, SKIPPED, BROKEN, NOT_RUN = "done", "unchanged", "skipped", "failed", "not run"
SPECS, ENGINE, DOCTOR, CONTAINER = "specs", "engine", "doctor", "container"
_NEEDED = ("driver", "devices", "gpus", "specs")  # and the engines of the plan


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step; `engine` is "" for a step of the node."""

    step: str
    state: str
    lines: tuple[str, ...] = ()
    engine: str = ""
    error: GpuhookError | None = None

    @property
    def title(self) -> str:
        """The step in words."""
        if self.step == CONTAINER:
            return f"container of {self.engine}"
        return self.engine or {SPECS: "CDI spec"}.get(self.step, self.step)


@dataclass(slots=True)
class SetupResult:
    """The results of the steps so far."""

    steps: list[StepResult] = field(default_factory=list)
    is_interrupted: bool = False

    @property
    def error(self) -> GpuhookError | None:
        """The fault of the step that failed, None if none has."""
        return next((one.error for one in self.steps if one.error is not None), None)


def carry_out(
    plan: SetupPlan, commands: NodeCommands, announce: Callable[[str], None]
) -> SetupResult:
    """Run the steps, until one fails or a signal comes; a step that began is completed.

    `announce` gets the title of each step before it runs.
    """
    result = SetupResult()
    with Interruptible() as signals:
        signals.hold()
        for name, engine, step in _steps(plan, commands):
            planned = StepResult(name, NOT_RUN, engine=engine)
            try:
                signals.check()
                announce(planned.title)
                done = step()
            except KeyboardInterrupt:
                result.is_interrupted, done = True, planned
            except (GpuhookError, OSError) as error:
                if name == CONTAINER and signals.came:  # the signal has ended the container too
                    result.is_interrupted, done = True, planned
                else:
                    done = StepResult(name, BROKEN, (), engine, worded(error))
            result.steps.append(done)
            if result.is_interrupted or done.error is not None:
                return result
    return result


def _steps(
    plan: SetupPlan, commands: NodeCommands
) -> list[tuple[str, str, Callable[[], StepResult]]]:
    """Return each step: its name, its engine and its function."""
    return [
        (SPECS, "", partial(_write_specs, plan, commands)),
        *((ENGINE, one.engine, partial(_configure, one, commands)) for one in plan.engines),
        (DOCTOR, "", partial(_examine, plan, commands)),
        *((CONTAINER, one.engine, partial(_prove, one, plan, commands)) for one in plan.engines),
    ]


def _write_specs(plan: SetupPlan, commands: NodeCommands) -> StepResult:
    if not any(one.state == WRITES for one in plan.specs):
        return StepResult(SPECS, UNCHANGED, tuple(f"{s.path}: {s.reason}" for s in plan.specs))
    states = commands.specs(is_dry=False)
    for one in states:
        if one.error is not None:
            raise one.error
    lines = tuple(f"wrote {one.path}" for one in plan.specs if one.state == WRITES)
    return StepResult(SPECS, DONE, lines)


def _configure(step: EngineStep, commands: NodeCommands) -> StepResult:
    if step.needs_nothing:
        return StepResult(ENGINE, UNCHANGED, (NOTHING_NEEDED,), step.engine)
    how: How = "auto" if step.restarts else "none"
    done = configure_engine.configure(commands.host, step.where, step.options, how=how)
    if how == "none" and step.way is not None and not step.way.text:
        done = replace(done, notes=_notes_if_stopped(done))
    lines = tuple(configure_text.sentences(done, "configure", is_dry=False))
    if step.engine == "docker" and step.options.route == "wrapper" and done.restarted:
        engine_program(step.where, commands.host).await_runtime(step.options.name)
    state = DONE if done.writes or done.restarted else UNCHANGED
    return StepResult(ENGINE, state, lines, step.engine)


def _notes_if_stopped(done: EngineResult) -> tuple[str, ...]:
    """Return the notes of an engine that is not running, and so needs no restart."""
    restart, later = (
        text.format(engine=done.engine)
        for text in (configure_engine.NOT_RESTARTED, configure_engine.NOT_RUNNING)
    )
    return tuple(later if one == restart else one for one in done.notes)


def _examine(plan: SetupPlan, commands: NodeCommands) -> StepResult:
    """Examine the node again. Raises GH2116 if a check that all containers need has failed.

    A failed check of an engine is reported: the container is the proof.
    """
    subjects = {*_NEEDED, *(one.engine for one in plan.engines)}
    ids = [one.id for one in checks() if one.id.partition(".")[0] in subjects]
    found = examine(commands.node(), checks(), ids)
    failed = found.of(FAILED)
    for one in failed:
        if one.check.section in _NEEDED:
            command = one.finding.command or "gpuhook doctor"
            raise fault("GH2116", check=one.check.id, message=one.finding.message, command=command)
    lines = [f"{one.finding.status}: {one.check.id}: {one.finding.message}" for one in failed]
    return StepResult(DOCTOR, DONE, (*lines, doctor_text.count(found)))


def _prove(step: EngineStep, plan: SetupPlan, commands: NodeCommands) -> StepResult:
    facts = plan.facts
    reason = gpu_container.not_provable(step, facts)
    if not reason and HostPrograms(commands.host).find(minimal_root.LIST) is None:
        reason = f"this host has no {minimal_root.LIST}, which finds the C library"
    if not reason and step.engine in WITH_IMAGES:
        reason = engine_program(step.where, commands.host).no_answer()
    if reason:
        return StepResult(CONTAINER, SKIPPED, (reason,), step.engine)
    lines: tuple[str, ...] = ()
    for device in facts.devices:
        proof = gpu_container.prove(step, device, commands.host)
        lines += (proof.command, *proof.lines)
    if step.engine not in WITH_IMAGES:
        lines += (f"only a pod proves the handler {step.options.name} of {step.engine}",)
    return StepResult(CONTAINER, DONE, lines, step.engine)
