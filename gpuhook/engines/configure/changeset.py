# SPDX-License-Identifier: Apache-2.0
"""What is to be written to a host, worked out from a plan, or from the record of what was done."""

from __future__ import annotations

import difflib
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuhook.engines.configure.configure_record import ConfigureRecord, Original, digest
from gpuhook.engines.configure.transaction import unwritable
from gpuhook.engines.read.config_files import Replaced
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.configure.changeset import Write
    from gpuhook.engines.configure.configure_record import RecordStore
    from gpuhook.engines.configure.engine_plan import (
        Engine,
        EngineNode,
        EngineOptions,
        EnginePlan,
        Service,
    )
    from gpuhook.engines.configure.host_files import Host, Kept


ENDS = "a restart of {program} stops its containers"


@dataclass(frozen=True, slots=True)
class Write:
    """A file that changes; `kept` is what its mode and owner become, None where they stay."""

    path: str
    before: bytes | None
    after: bytes | None
    kept: Kept | None
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Changeset:
    """All that is to be done, in the order of the fields.

    `meanwhile` is the record while files are written, `record` the one that stays, None where
    nothing is left to take back. `backups` are contents that the records name.
    """

    engine: str
    meanwhile: ConfigureRecord
    backups: tuple[bytes, ...]
    made: tuple[str, ...]
    writes: tuple[Write, ...]
    removed: tuple[str, ...]
    record: ConfigureRecord | None
    old: ConfigureRecord | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """A file of the record: what is there, what it would be without us, and by whose hand."""

    original: Original
    now: bytes | None
    base: bytes | None
    is_edited: bool


def original_files(
    host: Host, store: RecordStore, old: ConfigureRecord | None, engine: Engine
) -> Replaced:
    """Return the host's files as they would be if the engine had never been configured."""
    found = _found(host, store, old, engine)
    return Replaced(host, {one.original.path: one.base for one in found})


def to_configure(
    host: Host,
    store: RecordStore,
    old: ConfigureRecord | None,
    *,
    engine: Engine,
    plan: EnginePlan,
    node: EngineNode,
    wanted: EngineOptions,
) -> Changeset:
    """Return what a plan comes to, which was made from `original_files`; raises OSError."""
    found = {one.original.path: one for one in _found(host, store, old, engine)}
    changes = {one.path: one for one in plan.changes}
    originals, meanwhile, writes, backups = [], [], [], []
    for path in dict.fromkeys((*found, *changes)):
        change, one = changes.get(path), found.get(path)
        now = one.now if one else host.read(path)
        base = one.base if one else now
        after = change.after if change else base
        is_known = one is not None and not one.is_edited
        original = _original(host, path, base, one.original if one and is_known else None)
        if base is not None:
            backups.append(base)
        meanwhile.append(_knowing(original, base, now, after))
        if change:
            originals.append(_knowing(original, base, after))
        if now != after:
            kept = original.kept if change is None or now is None else None
            writes.append(Write(path, now, after, kept, change.mode if change else 0o644))
    made = _made(host, writes)
    directories = tuple(dict.fromkeys((*(old.directories if old else ()), *made)))
    needed = tuple(one for one in directories if _holds(one, changes))
    record = ConfigureRecord(
        engine=plan.engine,
        wanted=wanted,
        config=node.config,
        drop_in=node.drop_in,
        files=tuple(originals),
        directories=needed,
        service=plan.service,
        is_taken_up=old is not None and old.is_taken_up and not writes,
    )
    return Changeset(
        engine=plan.engine,
        meanwhile=replace(record, files=tuple(meanwhile), directories=directories),
        backups=tuple(backups),
        made=made,
        writes=tuple(writes),
        removed=_inner_first(one for one in directories if one not in needed),
        record=record if originals else None,
        old=old,
        notes=(*plan.notes, *((*plan.on_restart, *_ends(plan.service)) if writes else ())),
    )


def to_undo(host: Host, store: RecordStore, old: ConfigureRecord, engine: Engine) -> Changeset:
    """Return what brings back what was there before; raises OSError and faults of `without`."""
    writes, meanwhile, notes = [], [], []
    for one in _found(host, store, old, engine):
        path, original = one.original.path, one.original
        states = (*original.known, digest(one.now), digest(one.base))
        meanwhile.append(replace(original, known=tuple(dict.fromkeys(states))))
        if one.is_edited:
            notes.append(_edited(path, one))
        if one.now != one.base:
            kept = None if one.is_edited else original.kept
            writes.append(Write(path, one.now, one.base, kept))
        elif one.now is not None and not one.is_edited and host.kept(path) != original.kept:
            writes.append(Write(path, one.now, one.base, original.kept))
    return Changeset(
        engine=old.engine,
        meanwhile=replace(old, files=tuple(meanwhile), is_taken_up=False),
        backups=(),
        made=_made(host, writes),
        writes=tuple(writes),
        removed=_inner_first(old.directories),
        record=None,
        old=old,
        notes=(*notes, *(_ends(old.service) if writes else ())),
    )


def _ends(service: Service) -> tuple[str, ...]:
    """Return what a restart does to containers, where it does anything and is needed."""
    if service.reloads or not service.ends_containers:
        return ()
    return (ENDS.format(program=service.processes[0]),)


def _found(
    host: Host, store: RecordStore, old: ConfigureRecord | None, engine: Engine
) -> list[_Found]:
    found = []
    for original in old.files if old else ():
        now = host.read(original.path)
        if digest(now) in original.known:
            found.append(_Found(original, now, store.backup(original), is_edited=False))
            continue
        base = now
        if now is not None and old is not None and not _is_anew(original):
            was = None
            with suppress(GpuhookError, OSError):  # without it, ours is taken out all the same
                was = store.backup(original)
            base = engine.without(original.path, now, old.wanted, was)
            if base is None and original.digest:
                base = b""  # the file was there before: it stays, with nothing in it
        found.append(_Found(original, now, base, is_edited=True))
    return found


def _is_anew(original: Original) -> bool:
    """Return whether a file that is there now had been taken away by us: nothing in it is ours."""
    return bool(original.digest) and digest(None) in original.known


def _original(host: Host, path: str, base: bytes | None, known: Original | None) -> Original:
    """Return the file before us; one that was edited since begins anew, without what was ours."""
    if known is not None:
        return known
    kept = host.kept(path) if base is not None else None
    return Original(path, digest(base), kept, ())


def _knowing(original: Original, *contents: bytes | None) -> Original:
    return replace(original, known=tuple(dict.fromkeys(digest(one) for one in contents)))


def _edited(path: str, one: _Found) -> str:
    if one.now is None:
        return f"{path} is gone: somebody has removed it since, and it stays so"
    if _is_anew(one.original):
        return f"{path}, which gpuhook had removed, was made anew by somebody since, and stays so"
    return f"{path} was edited since: only what gpuhook had brought into it is taken out"


def _made(host: Host, writes: list[Write]) -> tuple[str, ...]:
    """Return the directories that have to be made for files, the outer before the inner.

    Raises GH2001 where a file cannot be: a dry run says so, too.
    """
    for one in writes:
        try:
            host.require_place(one.path)
        except OSError as error:
            raise unwritable(error) from error
    found = [made for one in writes if one.after is not None for made in host.missing(one.path)]
    return tuple(dict.fromkeys(found))


def _holds(directory: str, paths: Iterable[str]) -> bool:
    return any(path.startswith(directory + "/") for path in paths)


def _inner_first(directories: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(directories, key=lambda one: one.count("/"), reverse=True))


_NO_END = "\\ No newline at end of file"


def diff_text(writes: Iterable[Write]) -> str:
    """Return the diff of all files, "" where none changes its content."""
    return "".join(file_diff(one) for one in writes)


def file_diff(write: Write) -> str:
    """Return the diff of one file, "" where its content stays. Bytes that are no UTF-8 stay too."""
    before, after = _lines(write.before), _lines(write.after)
    old = "/dev/null" if write.before is None else f"a{write.path}"
    new = "/dev/null" if write.after is None else f"b{write.path}"
    lines = list(difflib.unified_diff(before, after, old, new))
    if not lines and (write.before is None) != (write.after is None):
        lines = [f"--- {old}\n", f"+++ {new}\n"]  # of a file with nothing in it
    return "".join(one if one.endswith("\n") else f"{one}\n{_NO_END}\n" for one in lines)


def _lines(content: bytes | None) -> list[str]:
    text = (content or b"").decode("utf-8", "surrogateescape")
    # splitlines() would break lines at a form feed, too.
    lines = [f"{one}\n" for one in text.split("\n")]
    return [*lines[:-1], *([lines[-1][:-1]] if lines[-1] != "\n" else [])]
