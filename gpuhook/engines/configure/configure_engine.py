# SPDX-License-Identifier: Apache-2.0
"""An engine is configured, and it is undone: worked out, written, verified, taken up."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from gpuhook.engines.configure import changeset, engine_restart, engine_verification, transaction
from gpuhook.engines.configure.configure_record import RecordStore, directory
from gpuhook.engines.configure.containerd import containerd_process
from gpuhook.engines.configure.engine_plan import EngineNode
from gpuhook.engines.configure.engine_plan import engine as module_of
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.changeset import Changeset, Write
    from gpuhook.engines.configure.configure_record import ConfigureRecord
    from gpuhook.engines.configure.engine_plan import Engine, EngineOptions, EnginePlan, Service
    from gpuhook.engines.configure.engine_restart import How, Way
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.configure.transaction import Applied
    from gpuhook.engines.read.engine_config import Version
    from gpuhook.engines.state.dependent_containers import Stored

NOT_RUNNING = "{engine} does not run: it reads its configuration when it starts"
NEW_FILE = "{path} was not there: {engine} reads it only if it is started with it"
RESTORED = "{path} is restored: gpuhook configures {engine} in one place, and that has changed"
NOT_TOLD = "{engine} reads this when it starts anew: say --restart, or restart it yourself"


@dataclass(frozen=True, slots=True)
class Where:
    """Whose engine it is, and where its files are; as of `EngineNode`."""

    engine: str
    config: str = ""
    drop_in: str = ""
    home: str | None = None


@dataclass(frozen=True, slots=True)
class EngineResult:
    """What was done, or in a dry run would be.

    `verified` is the command of the engine that has found it right, and `restarted` how the
    engine was told, both "" where there is none. `was_configured` is whether there was anything
    to undo; `stored` are the containers of the engine that then lack what they were made with.
    """

    engine: str
    writes: tuple[Write, ...]
    notes: tuple[str, ...]
    verified: str = ""
    restarted: str = ""
    was_configured: bool = True
    stored: tuple[Stored, ...] = ()


@dataclass(frozen=True, slots=True)
class _Job:
    """What one run works with."""

    host: Host
    where: Where
    how: How
    programs: HostPrograms
    store: RecordStore
    engine: Engine


def configure(
    host: Host, where: Where, wanted: EngineOptions, *, how: How = "none", is_dry: bool = False
) -> EngineResult:
    """Configure an engine; raises OSError and the faults of the engine's plan and of GH20xx.

    Nothing is written where everything is as wanted; then the engine is told only if it has not
    been since it was configured. Whatever fails after something was written is taken back.
    """
    programs = containerd_process.host_programs(host, where.engine, where.config)
    job = replace(_job(host, where, how), programs=programs)
    version = job.programs.version(where.engine)
    if is_dry:
        todo = _worked_out(job, wanted, version)[2]
        return EngineResult(where.engine, todo.writes, todo.notes)
    with job.store.locked():
        plan, node, todo = _worked_out(job, wanted, version)
        way = _way(job, plan.service, todo)
        if not todo.writes and todo.record == todo.old and not (way and way.text):
            return EngineResult(where.engine, (), todo.notes)
        done = transaction.Applied(host, job.store, todo)
        with _taken_back(done):
            verified = engine_verification.verify(job.programs, plan, node)
        _tell(job, way, done)
        record = todo.record
        if record and (way is not None or not plan.service.units + plan.service.processes):
            record = replace(record, is_taken_up=True)
        left = done.finish(record)
    unverified = (verified.reason,) if verified.reason else ()
    notes = (*unverified, *todo.notes, *_about(job, plan.service, todo, way), *_left(left))
    return EngineResult(where.engine, todo.writes, notes, verified.command, way.text if way else "")


def undo(host: Host, where: Where, *, how: How = "none", is_dry: bool = False) -> EngineResult:
    """Take back what `configure` has done; nothing where it has done nothing. Faults as there."""
    job = _job(host, where, how)
    old = _recorded(job)
    if old is None or is_dry:
        todo = changeset.to_undo(host, job.store, old, job.engine) if old else None
        writes, notes = (todo.writes, todo.notes) if todo else ((), ())
        stored = _stored(job) if todo else ()
        return EngineResult(
            where.engine, writes, notes, was_configured=old is not None, stored=stored
        )
    with job.store.locked():
        old = _recorded(job)
        if old is None:  # somebody else has undone it meanwhile
            return EngineResult(where.engine, (), (), was_configured=False)
        todo = changeset.to_undo(host, job.store, old, job.engine)
        stored = _stored(job)
        way = _way(job, old.service, todo)
        done = transaction.Applied(host, job.store, todo)
        _tell(job, way, done)
        left = done.finish(None)
    notes = (*todo.notes, *_about(job, old.service, todo, way), *_left(left))
    told = way.text if way else ""
    return EngineResult(where.engine, todo.writes, notes, restarted=told, stored=stored)


def _job(host: Host, where: Where, how: How) -> _Job:
    store = RecordStore(host, directory(where.engine, where.home))
    return _Job(host, where, how, HostPrograms(host), store, module_of(where.engine))


def _worked_out(
    job: _Job, wanted: EngineOptions, version: Version | None
) -> tuple[EnginePlan, EngineNode, Changeset]:
    """Return the plan, the node as the engine will find it, and what is to be written."""
    old, where = _recorded(job), job.where
    files = changeset.original_files(job.host, job.store, old, job.engine)
    node = EngineNode(
        files, version, where.config, where.drop_in, where.home, _base_spec(job, wanted)
    )
    plan = job.engine.plan(node, wanted)
    engine_verification.require_effect(plan, node)
    todo = changeset.to_configure(
        job.host, job.store, old, engine=job.engine, plan=plan, node=node, wanted=wanted
    )
    if where.config and any(one.path == where.config and one.before is None for one in todo.writes):
        said = NEW_FILE.format(path=where.config, engine=where.engine)
        todo = replace(todo, notes=(*todo.notes, said))
    if old is not None and where.config != old.config:
        changed = {one.path for one in plan.changes}
        restored = [one.path for one in todo.writes if one.path not in changed]
        notes = [RESTORED.format(path=path, engine=where.engine) for path in restored]
        todo = replace(todo, notes=(*todo.notes, *notes))
    return plan, replace(node, files=job.host), todo


def _recorded(job: _Job) -> ConfigureRecord | None:
    try:
        return job.store.load()
    except PermissionError as error:
        raise fault("GH2013", path=error.filename, engine=job.where.engine) from error


def _stored(job: _Job) -> tuple[Stored, ...]:
    """Return the containers that need gpuhook, by the configuration as it still is.

    What an engine keeps of them may be unreadable: nobody is kept from undoing by that.
    """
    from gpuhook.engines.state import dependent_containers

    found: tuple[Stored, ...] = ()
    with suppress(OSError, GpuhookError):
        found = dependent_containers.dependent_containers(job.host, job.where.home)
    return tuple(one for one in found if one.engine == job.where.engine)


def _base_spec(job: _Job, wanted: EngineOptions) -> bytes | None:
    """Return containerd's default spec where its route hook needs that, as its ctr prints it."""
    if job.where.engine != "containerd" or wanted.route != "hook":
        return None
    ran = job.programs.run(("ctr", "oci", "spec"))
    return ran.printed.encode() if ran and ran.status == 0 else None


def _way(job: _Job, service: Service, todo: Changeset) -> Way | None:
    """Return how the engine is told, None where it is not; GH2007 before anything is written."""
    if not todo.writes and (todo.old is None or todo.old.is_taken_up):
        return None
    if todo.old is not None and not todo.old.service.reloads:
        service = replace(service, reloads=False)  # what was configured then goes, or changes
    is_of_user = job.where.home is not None
    engine = job.where.engine
    return engine_restart.chosen(job.programs, engine, service, job.how, is_of_user=is_of_user)


@contextmanager
def _taken_back(done: Applied) -> Iterator[None]:
    try:
        yield
    except BaseException:
        done.take_back()
        raise


def _tell(job: _Job, way: Way | None, done: Applied) -> None:
    """Have the engine read its files; one that then does not run gets back those it ran with."""
    if way is None:
        return
    engine = job.where.engine
    try:
        with _taken_back(done):
            engine_restart.carry_out(job.programs, engine, way)
    except GpuhookError:
        if way.unit:
            with suppress(GpuhookError):  # the first one is told
                engine_restart.carry_out(job.programs, engine, way)
        raise


def _about(job: _Job, service: Service, todo: Changeset, way: Way | None) -> Iterator[str]:
    """Yield what is to be known of an engine that was not told."""
    engine = job.where.engine
    if way is not None and not way.text:
        yield NOT_RUNNING.format(engine=engine)
    elif way is None and todo.writes and (service.units or service.processes):
        yield NOT_TOLD.format(engine=engine)


def _left(directories: tuple[str, ...]) -> Iterator[str]:
    for path in directories:
        yield f"{path} stays: there is something else in it"
