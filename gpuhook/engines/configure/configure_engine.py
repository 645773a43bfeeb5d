# SPDX-License-Identifier: Apache-2.0
"""Configure an engine, and undo it: plan, write, verify, restart."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace

from gpuhook.engines.configure import changeset, engine_restart, engine_verification, transaction
from gpuhook.engines.configure.configure_record import RecordStore, directory
from gpuhook.engines.configure.containerd import containerd_process
from gpuhook.engines.configure.engine_plan import EngineNode, Service
from gpuhook.engines.configure.engine_plan import engine as module_of
from gpuhook.engines.configure.engine_verification import Verified
from gpuhook.engines.configure.host_programs import HostPrograms
from gpuhook.errors import GpuhookError, fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.engines.configure.changeset import Changeset
    from gpuhook.engines.configure.configure_record import ConfigureRecord
    from gpuhook.engines.configure.engine_plan import (
        ConfigChange,
        Engine,
        EngineOptions,
        EnginePlan,
    )
    from gpuhook.engines.configure.engine_restart import How, Way
    from gpuhook.engines.configure.host_files import Host
    from gpuhook.engines.configure.transaction import Applied
    from gpuhook.engines.read.engine_config import Version
    from gpuhook.engines.state.dependent_containers import Stored

NOT_RUNNING = "{engine} is not running: it will read the configuration at its next start"
NEW_FILE = "{path} did not exist: {engine} reads it only if started with this file"
RESTORED = (
    "{path} is restored: gpuhook configures {engine} in one file, which is now a different one"
)
NO_SERVICE = Service()
NOT_RESTARTED = "{engine} reads this after a restart: use --restart, or restart it"
NOT_RESTARTED_UNDONE = "{engine} reads the restored files when you restart it{command}"


@dataclass(frozen=True, slots=True)
class Where:
    """An engine and its files; the fields are those of `EngineNode`."""

    engine: str
    config: str = ""
    drop_in: str = ""
    home: str | None = None


@dataclass(frozen=True, slots=True)
class EngineResult:
    """The result of a run, or of a dry run.

    `verified` is the engine's command that accepted the files, `restarted` how the engine was
    restarted; "" for none. `was_configured` is false if there was nothing to undo. `stored` are the
    engine's containers that need gpuhook. `service` must still read the files; of a dry run, it
    would have to read them.
    """

    engine: str
    writes: tuple[ConfigChange, ...]
    notes: tuple[str, ...]
    verified: str = ""
    restarted: str = ""
    was_configured: bool = True
    stored: tuple[Stored, ...] = ()
    service: Service = NO_SERVICE


@dataclass(frozen=True, slots=True)
class _Job:
    """The objects of one run."""

    host: Host
    where: Where
    how: How
    programs: HostPrograms
    store: RecordStore
    engine: Engine


def configure(
    host: Host, where: Where, options: EngineOptions, *, how: How = "none", is_dry: bool = False
) -> EngineResult:
    """Configure an engine. Raises OSError, the faults of the engine's plan, and GH2001 to GH2013.

    Nothing is written if the engine is configured already; it is then restarted only if it was not
    since. A failure after the first write restores the files.
    """
    programs = containerd_process.host_programs(host, where.engine, where.config)
    job = _job(host, where, how, programs)
    version = programs.version(where.engine)
    if is_dry:
        changes = _planned(job, options, version)[2]
        service = _reader(changes)
        return EngineResult(where.engine, changes.writes, changes.notes, service=service)
    with job.store.locked():
        plan, node, changes = _planned(job, options, version)
        way = _restart_way(job, changes)
        if not changes.writes and changes.record == changes.old and not (way and way.text):
            return EngineResult(where.engine, (), changes.notes, service=_reader(changes))
        return _applied(
            job,
            changes,
            way,
            lambda: engine_verification.verify(programs, plan, node),
        )


def undo(host: Host, where: Where, *, how: How = "none", is_dry: bool = False) -> EngineResult:
    """Undo `configure`, if the engine is configured. Raises the same faults."""
    job = _job(host, where, how, HostPrograms(host))
    nothing = EngineResult(where.engine, (), (), was_configured=False)
    if _recorded(job) is None:
        if not is_dry:
            job.store.remove_remainder()
        return nothing
    with nullcontext() if is_dry else job.store.locked():
        old = _recorded(job)
        if old is None:  # another run undid it meanwhile
            return nothing
        changes = changeset.to_undo(host, job.store, old, job.engine)
        stored = _stored(job)
        if is_dry:
            return EngineResult(where.engine, changes.writes, changes.notes, stored=stored)
        way = _restart_way(job, changes)
        return replace(_applied(job, changes, way), stored=stored)


def _applied(
    job: _Job,
    changes: Changeset,
    way: Way | None,
    verify: Callable[[], Verified] = Verified,
) -> EngineResult:
    """Write the files, verify them and restart the engine; a failure restores the files."""
    done = transaction.Applied(job.host, job.store, changes)
    with _rolled_back(done):
        verified = verify()
    _restart(job, way, done)
    record = changes.record
    service = changes.service
    if record and (way is not None or not service.units + service.processes):
        record = replace(record, is_taken_up=True)
    elif record and not record.is_taken_up:
        record = replace(record, service=service)  # also a later restart must not be a reload
    left = done.finish(record)
    notes = (
        *((verified.reason,) if verified.reason else ()),
        *changes.notes,
        *_restart_notes(job, changes, way),
        *(f"{path} remains: it is not empty" for path in left),
    )
    restarted = way.text if way else ""
    pending = NO_SERVICE if restarted else _reader(changes)
    return EngineResult(
        job.where.engine, changes.writes, notes, verified.command, restarted, service=pending
    )


def _job(host: Host, where: Where, how: How, programs: HostPrograms) -> _Job:
    store = RecordStore(host, directory(where.engine, where.home))
    return _Job(host, where, how, programs, store, module_of(where.engine))


def _planned(
    job: _Job, options: EngineOptions, version: Version | None
) -> tuple[EnginePlan, EngineNode, Changeset]:
    """Return the plan, the node as the engine will find it, and the changeset."""
    old, where = _recorded(job), job.where
    files = changeset.original_files(job.host, job.store, old, job.engine)
    node = EngineNode(
        files, version, where.config, where.drop_in, where.home, _base_spec(job, options)
    )
    plan = job.engine.plan(node, options)
    engine_verification.require_effect(plan, node)
    changes = changeset.to_configure(
        job.host, job.store, old, engine=job.engine, plan=plan, node=node, options=options
    )
    notes = [
        NEW_FILE.format(path=one.path, engine=where.engine)
        for one in changes.writes
        if one.path == where.config and one.before is None
    ]
    if old is not None and where.config != old.config:
        changed = {one.path for one in plan.changes}
        restored = [one.path for one in changes.writes if one.path not in changed]
        notes += [RESTORED.format(path=path, engine=where.engine) for path in restored]
    changes = replace(changes, notes=(*changes.notes, *notes))
    return plan, replace(node, files=job.host), changes


def _recorded(job: _Job) -> ConfigureRecord | None:
    try:
        return job.store.load()
    except PermissionError as error:
        raise fault("GH2013", path=error.filename, engine=job.where.engine) from error


def _stored(job: _Job) -> tuple[Stored, ...]:
    """Return the engine's containers that need gpuhook, by the configuration before undo.

    An engine's state may be unreadable; that does not prevent undo.
    """
    from gpuhook.engines.state import dependent_containers

    containers: tuple[Stored, ...] = ()
    with suppress(OSError, GpuhookError):
        containers = dependent_containers.dependent_containers(job.host, job.where.home)
    return tuple(one for one in containers if one.engine == job.where.engine)


def _base_spec(job: _Job, options: EngineOptions) -> bytes | None:
    """Return the output of `ctr oci spec` for containerd's route hook, else None."""
    if job.where.engine != "containerd" or options.route != "hook":
        return None
    ran = job.programs.run(("ctr", "oci", "spec"))
    return ran.output.encode() if ran and ran.status == 0 else None


def _restart_way(job: _Job, changes: Changeset) -> Way | None:
    """Return how the engine is restarted, None for no restart. Raises GH2007, before any write."""
    is_of_user = job.where.home is not None
    engine, service = job.where.engine, _reader(changes)
    return engine_restart.chosen(job.programs, engine, service, job.how, is_of_user=is_of_user)


def _reader(changes: Changeset) -> Service:
    """Return the service that must read the files, an empty one if it has read them."""
    is_read = not changes.writes and (changes.old is None or changes.old.is_taken_up)
    return NO_SERVICE if is_read else changes.service


def restart_way(host: Host, where: Where, result: EngineResult) -> Way | None:
    """Return how `how="auto"` makes the engine read the files of a result, None if it has.

    Raises GH2007.
    """
    programs = containerd_process.host_programs(host, where.engine, where.config)
    return engine_restart.chosen(
        programs, where.engine, result.service, "auto", is_of_user=where.home is not None
    )


@contextmanager
def _rolled_back(done: Applied) -> Iterator[None]:
    try:
        yield
    except BaseException:
        done.roll_back()
        raise


def _restart(job: _Job, way: Way | None, done: Applied) -> None:
    """Restart the engine. If it does not run then, restore its files and restart it again."""
    if way is None:
        return
    engine = job.where.engine
    try:
        with _rolled_back(done):
            engine_restart.carry_out(job.programs, engine, way)
    except GpuhookError:
        if way.unit:
            with suppress(GpuhookError):  # the first failure is raised
                engine_restart.carry_out(job.programs, engine, way)
        raise


def _restart_notes(job: _Job, changes: Changeset, way: Way | None) -> Iterator[str]:
    """Yield a note if the engine was not restarted."""
    engine, service = job.where.engine, changes.service
    if way is not None and not way.text:
        yield NOT_RUNNING.format(engine=engine)
    elif way is None and changes.writes and (service.units or service.processes):
        if changes.record is not None:
            yield NOT_RESTARTED.format(engine=engine)
        else:  # another undo has nothing to do, and restarts nothing
            command = _restart_command(job, service)
            yield NOT_RESTARTED_UNDONE.format(engine=engine, command=command)


def _restart_command(job: _Job, service: Service) -> str:
    """Return the command that restarts the active unit of a service, as a part of a sentence."""
    is_of_user = job.where.home is not None
    with suppress(GpuhookError):
        way = engine_restart.chosen(
            job.programs, job.where.engine, service, "auto", is_of_user=is_of_user
        )
        if way is not None and way.unit:
            return f": systemctl {'--user ' if is_of_user else ''}restart {way.unit}"
    return ""
