# SPDX-License-Identifier: Apache-2.0
"""The plan of a node: its specs, its engines, and the commands that undo it."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace

from gpuhook.engines.configure import configure_engine
from gpuhook.engines.configure.configure_engine import NO_SERVICE
from gpuhook.engines.configure.engine_plan import ENGINES, NAME
from gpuhook.engines.read import podman_config
from gpuhook.errors import GpuhookError, fault
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
_IN_USE = "GH2000"
_NO_RESTART = "GH2007"


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """The name of the runtime, and whether it may replace one of another program."""

    name: str = NAME
    takes_over: bool = False


@dataclass(frozen=True, slots=True)
class EngineStep:
    """The configuration of one engine.

    `planned` is the result of its dry run. `way` makes the engine read the files, None if that is
    not needed; `obstacle` is why gpuhook cannot do it. `can_restart` says whether undo can.
    `restarts` is set if it is done. `note` is why the runtime does not have the usual name.
    """

    engine: str
    where: Where
    options: EngineOptions
    planned: EngineResult
    way: Way | None = None
    obstacle: str = ""
    can_restart: bool = True
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
    def undo(self) -> str:
        """The command that undoes the configuration, "" if there is none to undo."""
        if self.needs_nothing:
            return ""
        words = ["gpuhook", "configure", "undo", self.engine]
        if self.engine == "docker" and self.where.home is not None:
            words.append("--user")
        has_read = self.restarts or not (self.is_pending or self.planned.writes)
        is_restarted = has_read and self.can_restart and self.engine != "podman"
        return shlex.join([*words, "--restart"] if is_restarted else words)


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

    Without a choice, an engine that gpuhook configured keeps its options.
    """
    where, record = engine.where, engine.status.record
    if record is not None and choice is None:
        where = replace(where, config=record.config, drop_in=record.drop_in)
        options = record.wanted
    else:
        chosen = choice or RuntimeChoice()
        route = _route(engine)
        options = commands.options(
            engine.name, route, chosen.name, takes_over=chosen.takes_over and route != "cdi"
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
    if service == NO_SERVICE:
        used = replace(record.service, reloads=False) if record else service
        return replace(step, can_restart=not _restart(step, used, host)[1])
    # A reload removes no setting: undo needs a restart.
    can_restart = not _restart(step, replace(service, reloads=False), host)[1]
    if not step.planned.writes and _has_read(step, host):
        return replace(step, can_restart=can_restart)
    way, obstacle = _restart(step, service, host)
    return replace(step, way=way, obstacle=obstacle, can_restart=can_restart)


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


def runtime_in_use(engine: EngineFacts, commands: NodeCommands) -> str:
    """Return the message that another program has the usual runtime, "" if none has."""
    try:
        engine_step(engine, commands, None, restarts=False)
    except GpuhookError as error:
        if error.code != _IN_USE:
            raise
        return error.message
    return ""


def _route(engine: EngineFacts) -> Route | None:
    """Return the route with the fewest changes: podman that reads CDI specs needs none."""
    if engine.name == "podman" and podman_config.has_cdi(engine.version):
        return "cdi"
    return None


def undo_commands(
    plan: SetupPlan, specs: Iterable[SpecState], engines: Iterable[EngineStep]
) -> list[str]:
    """Return the commands that undo these steps, in their order; with sudo if it was used."""
    commands = [one.undo for one in engines][::-1]
    new = [one.path for one in specs if one.state == WRITES and one.is_new]
    commands += [shlex.join(["rm", path]) for path in new]
    commands += [shlex.join(["rmdir", one]) for one in plan.new_directories if new]
    prefix = "sudo " if "SUDO_UID" in os.environ and plan.facts.is_root else ""
    return [prefix + one for one in commands if one]
