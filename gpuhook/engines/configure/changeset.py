# SPDX-License-Identifier: Apache-2.0
"""The writes that configure an engine, from its plan, or undo it, from its record."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuhook.engines.configure.configure_record import ConfigureRecord, Original, digest
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.configure.transaction import unwritable
from gpuhook.engines.read import docker_config
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.engines.configure.configure_record import RecordStore
    from gpuhook.engines.configure.engine_plan import (
        Engine,
        EngineNode,
        EngineOptions,
        EnginePlan,
        Service,
    )
    from gpuhook.engines.configure.host_files import Host


RESTART_NOTE = "a restart of {program} stops its containers"


@dataclass(frozen=True, slots=True)
class Changeset:
    """The steps of one run, in the order of the fields.

    `meanwhile` is the record while files are written, `record` the final one, None if nothing is
    left to undo. `backups` are the contents that the records name. `service` must read the writes.
    """

    meanwhile: ConfigureRecord
    backups: tuple[bytes, ...]
    made: tuple[str, ...]
    writes: tuple[ConfigChange, ...]
    removed: tuple[str, ...]
    record: ConfigureRecord | None
    old: ConfigureRecord | None
    service: Service
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _RecordedFile:
    """A file of the record: its content now, and its content without gpuhook's changes.

    `is_edited` is set if a user changed it since.
    """

    original: Original
    now: bytes | None
    base: bytes | None
    is_edited: bool


@dataclass(frozen=True, slots=True)
class _FileStep:
    """The step of one file: its content without gpuhook's changes, its records, its write."""

    base: bytes | None
    meanwhile: Original
    final: Original | None
    write: ConfigChange | None


def original_files(
    host: Host, store: RecordStore, old: ConfigureRecord | None, engine: Engine
) -> ReplacedFiles:
    """Return the host's files without gpuhook's changes to the engine."""
    files = _recorded_files(host, store, old, engine)
    return ReplacedFiles({one.original.path: one.base for one in files}, host)


def to_configure(
    host: Host,
    store: RecordStore,
    old: ConfigureRecord | None,
    *,
    engine: Engine,
    plan: EnginePlan,
    node: EngineNode,
    options: EngineOptions,
) -> Changeset:
    """Return the changeset of a plan that was made from `original_files`. Raises OSError."""
    recorded = {one.original.path: one for one in _recorded_files(host, store, old, engine)}
    changes = {one.path: one for one in plan.changes}
    steps = [
        _file_step(host, path, changes.get(path), recorded.get(path))
        for path in dict.fromkeys((*recorded, *changes))
    ]
    writes = tuple(one.write for one in steps if one.write)
    made = _new_directories(host, writes)
    directories = tuple(dict.fromkeys((*(old.directories if old else ()), *made)))
    needed = tuple(
        one for one in directories if any(path.startswith(f"{one}/") for path in changes)
    )
    record = ConfigureRecord(
        engine=plan.engine,
        wanted=options,
        config=node.config,
        drop_in=node.drop_in,
        files=tuple(one.final for one in steps if one.final),
        directories=needed,
        service=plan.service,
        is_taken_up=old is not None and old.is_taken_up and not writes,
    )
    service = _service(plan.service, old, writes)
    return Changeset(
        meanwhile=replace(
            record, files=tuple(one.meanwhile for one in steps), directories=directories
        ),
        backups=tuple(one.base for one in steps if one.base is not None),
        made=made,
        writes=writes,
        removed=_inner_first(one for one in directories if one not in needed),
        record=record if record.files else None,
        old=old,
        service=service,
        notes=(*plan.notes, *(plan.on_restart if writes else ()), *_restart_notes(service, writes)),
    )


def _file_step(
    host: Host, path: str, change: ConfigChange | None, recorded: _RecordedFile | None
) -> _FileStep:
    """Return the step of a file that the plan changes, or that was configured before."""
    now = recorded.now if recorded else host.read(path)
    base = recorded.base if recorded else now
    after = change.after if change else base
    is_known = recorded is not None and not recorded.is_edited
    original = _original(host, path, base, recorded.original if recorded and is_known else None)
    write = None
    if now != after:
        kept = original.kept if change is None or now is None else None
        write = replace(change or ConfigChange(path, now, after), before=now, kept=kept)
    return _FileStep(
        base,
        _with_states(original, base, now, after),
        _with_states(original, base, after) if change else None,
        write,
    )


def to_undo(host: Host, store: RecordStore, old: ConfigureRecord, engine: Engine) -> Changeset:
    """Return the changeset that restores the files. Raises OSError and the faults of `without`."""
    writes, meanwhile, notes = [], [], []
    for one in _recorded_files(host, store, old, engine):
        path, original = one.original.path, one.original
        states = (*original.known, digest(one.now), digest(one.base))
        meanwhile.append(replace(original, known=tuple(dict.fromkeys(states))))
        if one.is_edited:
            notes.append(_edited(path, one))
        if one.now != one.base:
            kept = None if one.is_edited else original.kept
            writes.append(ConfigChange(path, one.now, one.base, kept=kept))
        elif one.now is not None and not one.is_edited and host.kept(path) != original.kept:
            writes.append(ConfigChange(path, one.now, one.base, kept=original.kept))
    service = _service(old.service, old, writes)
    return Changeset(
        meanwhile=replace(old, files=tuple(meanwhile), is_taken_up=False),
        backups=(),
        made=_new_directories(host, writes),
        writes=tuple(writes),
        removed=_inner_first(old.directories),
        record=None,
        old=old,
        service=service,
        notes=(*notes, *_restart_notes(service, writes)),
    )


def _service(
    service: Service, old: ConfigureRecord | None, writes: Sequence[ConfigChange]
) -> Service:
    """Return the service, without `reloads` if SIGHUP is not enough for these writes.

    It is not if the old configuration, which they remove or change, needed a restart. dockerd is
    the only engine that reloads.
    """
    is_enough = old is None or old.service.reloads
    is_enough = is_enough and all(
        docker_config.is_reloaded(one.before, one.after) for one in writes
    )
    return replace(service, reloads=service.reloads and is_enough)


def _restart_notes(service: Service, writes: Sequence[ConfigChange]) -> tuple[str, ...]:
    """Return a note if the writes need a restart that stops containers."""
    note = restart_note(service)
    return (note,) if writes and note else ()


def restart_note(service: Service) -> str:
    """Return that the restart which the service needs stops containers, "" if it does not."""
    if service.reloads or not service.ends_containers:
        return ""
    return RESTART_NOTE.format(program=service.processes[0])


def _recorded_files(
    host: Host, store: RecordStore, old: ConfigureRecord | None, engine: Engine
) -> list[_RecordedFile]:
    found = []
    for original in old.files if old else ():
        now = host.read(original.path)
        if digest(now) in original.known:
            found.append(_RecordedFile(original, now, store.backup(original), is_edited=False))
            continue
        base = now
        if now is not None and old is not None and not _is_recreated(original):
            was = None
            with suppress(GpuhookError, OSError):  # gpuhook's settings can be removed without it
                was = store.backup(original)
            base = engine.without(original.path, now, old.wanted, was)
            if base is None and original.digest:
                base = b""  # the file existed before: it remains, empty
        found.append(_RecordedFile(original, now, base, is_edited=True))
    return found


def _is_recreated(original: Original) -> bool:
    """Return whether gpuhook had removed the file: a new one has nothing of gpuhook."""
    return bool(original.digest) and digest(None) in original.known


def _original(host: Host, path: str, base: bytes | None, known: Original | None) -> Original:
    """Return the original; an edited file without gpuhook's settings becomes a new one."""
    if known is not None:
        return known
    kept = host.kept(path) if base is not None else None
    return Original(path, digest(base), kept, ())


def _with_states(original: Original, *contents: bytes | None) -> Original:
    return replace(original, known=tuple(dict.fromkeys(digest(one) for one in contents)))


def _edited(path: str, one: _RecordedFile) -> str:
    if one.now is None:
        return f"{path} was removed since it was configured, and is not restored"
    if _is_recreated(one.original):
        return f"{path}, which gpuhook had removed, was recreated, and is not changed"
    return f"{path} has been edited since: only gpuhook's settings are removed"


def _new_directories(host: Host, writes: Sequence[ConfigChange]) -> tuple[str, ...]:
    """Return the directories that must be created, the outer before the inner.

    Raises GH2001 if a file cannot be created; so does a dry run.
    """
    for one in writes:
        try:
            host.require_place(one.path)
        except OSError as error:
            raise unwritable(error) from error
    found = [made for one in writes if one.after is not None for made in host.missing(one.path)]
    return tuple(dict.fromkeys(found))


def _inner_first(directories: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(directories, key=lambda one: one.count("/"), reverse=True))


_NO_END = "\\ No newline at end of file"


def diff_text(writes: Iterable[ConfigChange]) -> str:
    """Return the unified diff of all files, for patch(1); "" if no content changes."""
    return "".join(file_diff(one) for one in writes)


def file_diff(write: ConfigChange) -> str:
    """Return the diff of one file, "" if its content does not change."""
    before, after = _lines(write.before), _lines(write.after)
    old = "/dev/null" if write.before is None else f"a{write.path}"
    new = "/dev/null" if write.after is None else f"b{write.path}"
    lines = list(difflib.unified_diff(before, after, old, new))
    if not lines and (write.before is None) != (write.after is None):
        lines = [f"--- {old}\n", f"+++ {new}\n"]  # an empty file
    return "".join(one if one.endswith("\n") else f"{one}\n{_NO_END}\n" for one in lines)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "surrogateescape")
    # splitlines() also breaks lines at a form feed.
    lines = [f"{one}\n" for one in text.split("\n")]
    return [*lines[:-1], *([lines[-1][:-1]] if lines[-1] != "\n" else [])]
