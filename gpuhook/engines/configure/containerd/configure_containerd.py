# SPDX-License-Identifier: Apache-2.0
"""containerd gets gpuhook's handler, in the file where it counts and nothing else is lost.

Up to 2.0, what a later file says of a plugin replaces all that earlier ones say of it: the file
that counts is edited then. From 2.1 on files are merged, and a drop-in of a few lines is enough.
docs/containerd.md has the whole rule.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.engines.configure.containerd import (
    base_spec,
    containerd_locations,
    containerd_notes,
    containerd_templates,
)
from gpuhook.engines.configure.containerd.containerd_check import checked
from gpuhook.engines.configure.containerd.containerd_handler import (
    BASE_SPEC,
    is_ours,
    runtimes_of,
    wanted_handler,
)
from gpuhook.engines.configure.containerd.containerd_target import HEADING, placed
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig
from gpuhook.engines.configure.toml import toml_marks
from gpuhook.engines.configure.toml.toml_edit import CannotError, edited
from gpuhook.engines.configure.toml.toml_lines import Setting
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.containerd_files import CRI_KEYS, is_of_1
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.configure.containerd.containerd_handler import Handler
    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_options import EngineNode, EngineOptions
    from gpuhook.engines.configure.engine_plan import ConfigChange
    from gpuhook.engines.read.containerd_config import Containerd
    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.errors import GpuhookError


def plan(node: EngineNode, wanted: EngineOptions) -> EnginePlan:
    """Return what is to change; raises a fault of GH2000, GH2020 to GH2029, and OSError."""
    place = containerd_locations.containerd_location(node)
    read = reader.read(node.files, place.root, place.daemon)
    _check(read, node, wanted, place)
    handler = wanted_handler(read, wanted)
    notes = list(handler.notes)
    base = []
    if wanted.route == "hook":
        made = base_spec.change(node, wanted.hook, handler.base_spec)
        base = [made] if made else []
    if place.kind == "template" and not containerd_templates.drop_ins(place, read):
        made_of = containerd_templates.plan(node, place, read, wanted, handler)
        return replace(made_of, changes=(*base, *made_of.changes))
    settings = list(_settings(place, read, wanted, handler))
    changes = placed(node, place, read, wanted, settings)
    after = reader.read(node.files, place.root, place.daemon)
    if place.kind == "file":
        after = checked(node, place, before=read, changes=changes, wanted=wanted, handler=handler)
    notes += _told(place, read, settings, changes)
    expected = _expected(place, wanted, handler, after)
    # What a distribution makes of a file is read by its own containerd: nobody else is asked.
    config = None if place.distribution else place.root
    return EnginePlan(
        "containerd", (*base, *changes), expected, place.service, tuple(notes), config
    )


def without(
    path: str,
    content: bytes,
    wanted: EngineOptions,
    before: bytes | None = None,
) -> bytes | None:
    """Return a file that somebody has edited since, less what is ours; None for nothing else.

    A handler that ours took the place of is there again, as it was `before`. Raises GH2003
    of what is no TOML, GH2027 where only what is left is none.
    """
    if path == BASE_SPEC:
        return base_spec.without(content, wanted.hook)
    if containerd_templates.is_template(path):
        return containerd_templates.without(content, is_new=before is None)
    try:
        left = _less_handler(path, toml_marks.without(content), wanted, before or b"")
        document = toml_document.parsed(left)
    except toml_document.UnreadableTomlError as error:
        raise _unreadable(path, content, error) from error
    left = left.replace(f"{HEADING}\n".encode(), b"")
    # A comment that somebody has added stays, in a file of ours too.
    if HEADING.encode() in content and not set(document) - {"version"} and b"#" not in left:
        return None
    return left


def _unreadable(
    path: str, content: bytes, error: toml_document.UnreadableTomlError
) -> GpuhookError:
    """Return the fault of a file that is no TOML: as it is, or only without ours."""
    try:
        toml_document.parsed(content)
    except toml_document.UnreadableTomlError as there:
        where = f"{path}:{there.line}" if there.line else path
        said = f"is no TOML: {there.reason}"
        return fault("GH2003", where=where, said=said, engine="containerd")
    said = f"it is no TOML without what is gpuhook's: {error.reason}"
    return fault("GH2027", where=path, said=said)


def _less_handler(path: str, content: bytes, wanted: EngineOptions, before: bytes) -> bytes:
    """Return a file less the handler that calls our program, where no mark says that it is ours.

    tomlkit wrote it then, or somebody removed the marks: the handler is as it was `before`.
    """
    document, was = toml_document.parsed(content), toml_document.parsed(before)
    gone: list[Setting] = []
    for key in CRI_KEYS:
        names = ("plugins", key, "containerd")
        engine = toml_document.table(document, *names)
        there = toml_document.table(engine, "runtimes", wanted.name)
        if wanted.program not in toml_document.table(there, "options").values():
            continue
        table = toml_document.table(was, *names, "runtimes").get(wanted.name)
        handler = (*names, "runtimes", wanted.name)
        if isinstance(table, dict):
            gone += _handler_settings(handler, there, table)
        else:
            gone.append(Setting(handler, None))
        if engine.get("default_runtime_name") == wanted.name:
            default = toml_document.table(was, *names).get("default_runtime_name")
            gone.append(Setting((*names, "default_runtime_name"), default))
    try:
        return toml_marks.settled(edited(content, gone))
    except CannotError as error:
        raise fault("GH2027", where=path, said=str(error)) from error


def _check(
    read: Containerd, node: EngineNode, wanted: EngineOptions, place: ContainerdLocation
) -> None:
    for one in read.configuration.fatal:
        if one.is_unread:
            raise fault("GH2027", where=one.where, said=one.said)
        raise fault("GH2003", where=one.where, said=one.said, engine="containerd")
    if not read.has_cri and not wanted.enables_cri:
        raise fault("GH2020", where=read.root)
    there = _registered(read, node, wanted, place)
    is_template = place.kind == "template" and not containerd_templates.drop_ins(place, read)
    if there and not is_ours(there, wanted) and not (wanted.takes_over or is_template):
        raise fault(
            "GH2000",
            where=there.where,
            name=wanted.name,
            engine="containerd",
            program=there.path or there.type or "containerd's own",
        )
    if wanted.route == "cdi" and place.daemon and place.daemon < reader.HAS_CDI:
        said = f"is read by a containerd {'.'.join(map(str, place.daemon))}, which knows no CDI"
        raise fault("GH2029", where=read.root, said=said)
    if wanted.is_default and toml_document.table(read.cri, "containerd", "default_runtime").get(
        "runtime_type"
    ):
        raise fault(
            "GH2026",
            where=read.root,
            said="the old table default_runtime counts more than default_runtime_name",
            how="make it a handler of its own below runtimes, and name that",
        )


def _registered(
    read: Containerd, node: EngineNode, wanted: EngineOptions, place: ContainerdLocation
) -> Runtime | None:
    """Return the runtime of that name, also from drop-ins that k0s has not taken up yet."""
    there = read.configuration.runtimes.get(wanted.name)
    if place.kind != "patch" or (there and not is_ours(there, wanted)):
        return there
    for name in node.files.names(containerd_locations.K0S_DROP_INS):
        path = f"{containerd_locations.K0S_DROP_INS}/{name}"
        one = reader.read(node.files, path).configuration.runtimes.get(wanted.name)
        if name.endswith(".toml") and one and not is_ours(one, wanted):
            return one
    return there


def _settings(
    place: ContainerdLocation, read: Containerd, wanted: EngineOptions, handler: Handler
) -> Iterator[Setting]:
    """Yield what has to be said below the plugin's key; `disabled_plugins` is of no plugin.

    What was made for containerd by others may have ours in it by now: that is said again.
    """
    daemon, name, is_read = place.daemon, wanted.name, place.kind == "file"
    if not read.has_cri:
        kept = [one for one in read.disabled if one not in CRI_KEYS]
        yield Setting(("disabled_plugins",), kept)
    knows_cdi = not (daemon and daemon < reader.HAS_CDI)
    if knows_cdi and (not read.has_cdi(daemon) or not (is_read or read.version >= 3)):
        yield Setting(("enable_cdi",), True)
    if wanted.is_default and not (is_read and read.configuration.default == name):
        yield Setting(("containerd", "default_runtime_name"), name)
    written = runtimes_of(read)
    if is_read and is_of_1(daemon, read.version) and not written:
        # A table of handlers takes the place of the one that a containerd 1.x has of its own.
        yield Setting(("containerd", "runtimes", "runc"), {"runtime_type": reader.RUNC})
    there = written.get(name) if is_read else None
    yield from _handler_settings(("containerd", "runtimes", name), there, handler.table)


def _handler_settings(
    path: tuple[str, ...], there: object, table: dict[str, object]
) -> Iterator[Setting]:
    """Yield a whole new table, or of one that is there the keys that differ."""
    if not isinstance(there, dict):
        yield Setting(path, table)
        return
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(there.get(key), dict):
            yield from _handler_settings((*path, key), there[key], value)
        elif there.get(key) != value:
            yield Setting((*path, key), value)
    for key in there:
        if key not in table:
            yield Setting((*path, key), None)


def _expected(
    place: ContainerdLocation, wanted: EngineOptions, handler: Handler, after: Containerd
) -> ExpectedConfig:
    """Return what the file says, nothing of one that is made only at the next start."""
    if place.kind != "file":
        return ExpectedConfig({})
    default = wanted.name if wanted.is_default else ""
    has_cdi = after.has_cdi(place.daemon)
    return ExpectedConfig({wanted.name: handler.program}, default, has_cdi)


def _told(
    place: ContainerdLocation,
    read: Containerd,
    settings: list[Setting],
    changes: tuple[ConfigChange, ...],
) -> Iterator[str]:
    for note in place.notes:
        if note != "nodeadm":
            yield note
        elif changes:
            keyed = [Setting(("plugins", read.key, *one.path), one.value) for one in settings]
            yield containerd_notes.nodeadm(keyed)
    if read.configuration.cdi_enabled is False:
        yield "enable_cdi was off and is on now"
    for one in read.ignored:
        if one.runtime.gives_gpus:
            by = f"{one.by} replaces it" if one.by else f"this containerd does not read {one.key}"
            yield f"{one.runtime.where}: the runtime {one.runtime.name} does not count: {by}"
