# SPDX-License-Identifier: Apache-2.0
"""The plan of a node: its specs, its engines, and the commands that undo it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace

from gpuhook.engines.configure import changeset, configure_engine
from gpuhook.engines.configure.configure_engine import NO_SERVICE
from gpuhook.engines.configure.engine_plan import ENGINES
from gpuhook.engines.read import podman_config
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import state
from gpuhook.install.runtime_names import names_of_gpus
from gpuhook.setup.engine_program import engine_program
from gpuhook.setup.node_commands import WRITES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.engines.configure.configure_engine import EngineResult, Where
    from gpuhook.engines.configure.configure_record import ConfigureRecord
    from gpuhook.engines.configure.engine_plan import EngineOptions, Route, Service
    from gpuhook.engines.configure.engine_restart import Way
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.setup.node_commands import NodeCommands, SpecState
    from gpuhook.setup.setup_facts import EngineFacts, SetupFacts

BESIDE = "gpuhook"  # the name of a second runtime, if another program has the usual one
NOTHING_NEEDED = "it reads CDI specs, and needs no configuration"
IN_USE = "GH2000"  # another program has the runtime of that name
_NO_RESTART = "GH2007"


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The names of the runtime, and whether it may replace one of another program."""

    names: tuple[str, ...]
    takes_over: bool = False


@dataclass(frozen=True, slots=True)
class EngineStep:
    """The configuration of one engine.

    `planned` is the result of its dry run. `way` makes the engine read the files, None if that is
    not needed; `obstacle` is why gpuhook cannot do it. `can_restart` says whether undo can,
    and `undo_note` that this stops containers. `restarts` is set if it is done. `note` is why the
    runtime does not have the usual name.
    """

    engine: str
    where: Where
    options: EngineOptions
    planned: EngineResult
    way: Way | None = None
    obstacle: str = ""
    can_restart: bool = True
    undo_note: str = ""
    restarts: bool = False
    note: str = ""

    @property
    def needs_nothing(self) -> bool:
        """Whether the engine gives GPUs without any configuration of it."""
        return self.options.route == "cdi" and not self.planned.writes

    @property
    def is_restart(self) -> bool:
        """Whether the engine must be restarted: a reload stops nothing, and needs no question."""
        return self.way is not None and bool(self.way.text) and not self.way.reloads

    @property
    def ends_containers(self) -> bool:
        """Whether that restart stops the engine's containers."""
        return self.is_restart and self.planned.service.ends_containers

    @property
    def is_pending(self) -> bool:
        """Whether the engine will not have read the files after this step."""
        return bool(self.obstacle) or (self.is_restart and not self.restarts)

    @property
    def undo_restarts(self) -> bool:
        """Whether undo restarts the engine, because it has read the files."""
        has_read = self.restarts or not (self.is_pending or self.planned.writes)
        return has_read and self.can_restart and self.engine != "podman"

    @property
    def undo(self) -> str:
        """The command that undoes the configuration, "" if there is none to undo."""
        if self.needs_nothing:
            return ""
        words = ["gpuhook", "configure", "undo", self.engine]
        if self.engine == "docker" and self.where.home is not None:
            words.append("--user")
        return shlex.join([*words, "--restart"] if self.undo_restarts else words)


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The steps, in their order. `new_directories` are those of the specs that do not exist."""

    facts: SetupFacts
    specs: tuple[SpecState, ...]
    engines: tuple[EngineStep, ...]
    new_directories: tuple[str, ...] = ()

    @property
    def has_changes(self) -> bool:
        """Whether a step changes the node."""
        has_specs = any(one.state == WRITES for one in self.specs)
        return has_specs or any(one.planned.writes or one.restarts for one in self.engines)


@dataclass(frozen=True, slots=True)
class Undo:
    """The commands that undo steps, in their order, and notes on their effects."""

    commands: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def chosen_engines(facts: SetupFacts, named: Sequence[str]) -> list[EngineFacts]:
    """Return the engines to set up: the named ones, else those of the node.

    Raises GH2112 if only root may configure them, GH2113 if the node has none of them.
    """
    here = {one.name: one for one in facts.engines}
    missing = [name for name in named if name not in here]
    if missing or not here:
        wanted = " and no ".join(missing) or f"container engine ({', '.join(ENGINES)})"
        others = f" (it has {', '.join(here)})" if here else ""
        raise fault("GH2113", wanted=wanted, others=others)
    chosen = [here[name] for name in dict.fromkeys(named)]
    chosen = chosen or [one for one in facts.engines if one.is_default]
    usable = [one for one in chosen if not one.needs_root]
    if not usable or (named and len(usable) < len(chosen)):
        names = ", ".join(one.name for one in chosen if one.needs_root)
        raise fault("GH2112", what=f"configuring {names}")
    return usable


def setup_plan(facts: SetupFacts, engines: Iterable[EngineStep], host: Host) -> SetupPlan:
    """Return the plan. Raises GH2112 if a user cannot write the specs, and the specs' faults."""
    for one in facts.specs:
        if one.error is not None:
            raise one.error
        if one.state == WRITES and not facts.is_root:
            raise fault("GH2112", what=f"writing {one.path}")
    missing = [host.missing(one.path) for one in facts.specs if one.state == WRITES]
    new = tuple(dict.fromkeys(path for paths in missing for path in reversed(paths)))
    return SetupPlan(facts, facts.specs, tuple(engines), new)


def engine_step(
    engine: EngineFacts, commands: NodeCommands, choice: RuntimeChoice | None, *, restarts: bool
) -> EngineStep:
    """Return the step of an engine, by a dry run. Raises the faults of `gpuhook configure`.

    An engine that gpuhook configured keeps its options, except for a choice.
    """
    where, record = engine.where, engine.status.record
    if record is not None:
        where = replace(where, config=record.config, drop_in=record.drop_in)
        options = record.wanted
        if choice is not None:
            first, *others = choice.names
            options = replace(
                options, name=first, further_names=tuple(others), takes_over=choice.takes_over
            )
    else:
        route = _route(engine)
        has_runtime = engine.name != "podman"  # which reads CDI specs or has the hook
        names = names_of_gpus(state.host_root()) if has_runtime else ()
        chosen = choice or RuntimeChoice(names)
        options = commands.options(
            engine.name, route, chosen.names, takes_over=chosen.takes_over and route != "cdi"
        )
    host = commands.host
    planned = configure_engine.configure(host, where, options, is_dry=True)
    step = _with_restart(EngineStep(engine.name, where, options, planned), record, host)
    if step.obstacle and restarts:
        raise fault("GH2007", engine=engine.name, how="auto", reason=step.obstacle)
    does = step.way is not None and bool(step.way.text) and (restarts or step.way.reloads)
    return replace(step, restarts=does)


def _with_restart(step: EngineStep, record: ConfigureRecord | None, host: Host) -> EngineStep:
    """Return the step with what makes the engine read the files, and with what undo needs."""
    service = step.planned.service
    is_read = service == NO_SERVICE
    # A reload removes no setting: undo needs a restart.
    undone = replace(record.service if record and is_read else service, reloads=False)
    step = replace(
        step,
        can_restart=not _restart(step, undone, host)[1],
        undo_note=changeset.restart_note(undone),
    )
    if is_read or (not step.planned.writes and _has_read(step, host)):
        return step
    way, obstacle = _restart(step, service, host)
    return replace(step, way=way, obstacle=obstacle)


def _restart(step: EngineStep, service: Service, host: Host) -> tuple[Way | None, str]:
    """Return how gpuhook restarts or reloads a service, and why it cannot."""
    try:
        planned = replace(step.planned, service=service)
        return configure_engine.restart_way(host, step.where, planned), ""
    except GpuhookError as error:
        if error.code != _NO_RESTART:
            raise
        return None, error.message.partition(": ")[2].partition(";")[0]


def _has_read(step: EngineStep, host: Host) -> bool:
    """Return whether Docker was restarted since its files were written, by another program."""
    if step.engine != "docker" or step.options.route != "wrapper":
        return False
    return engine_program(step.where, host).has_runtime(step.options.name)


def _route(engine: EngineFacts) -> Route | None:
    """Return the route with the fewest changes: podman that reads CDI specs needs none."""
    if engine.name == "podman" and podman_config.has_cdi(engine.version):
        return "cdi"
    return None


def undo_of_steps(
    plan: SetupPlan, specs: Iterable[SpecState], engines: Sequence[EngineStep]
) -> Undo:
    """Return what undoes these steps; the commands have sudo if it was used."""
    commands = [one.undo for one in engines][::-1]
    notes = [one.undo_note for one in engines if one.undo and one.undo_restarts]
    new = [one.path for one in specs if one.state == WRITES and one.is_new]
    commands += [shlex.join(["rm", path]) for path in new]
    commands += [shlex.join(["rmdir", one]) for one in plan.new_directories if new]
    units = plan.facts.refresh_units
    if new and units:
        off = shlex.join(["systemctl", "disable", "--now", *units])
        notes.append(f"{units[0]} writes {', '.join(new)} again, unless you run `{off}` before")
    prefix = "sudo " if "SUDO_UID" in os.environ and plan.facts.is_root else ""
    commands = [prefix + one for one in commands if one]
    return Undo(tuple(commands), tuple(one for one in notes if one))
