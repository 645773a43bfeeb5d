# SPDX-License-Identifier: Apache-2.0
"""Configure containerd: write gpuhook's handler into the file that has precedence.

Up to 2.0, a later file replaces the whole table of a plugin: the last file with the table is
edited. From 2.1 on, files are merged, and a short drop-in is enough. The whole rule is in
docs/how-to/containerd.md.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.containerd import (
    base_spec,
    containerd_locations,
    containerd_nri,
    containerd_templates,
)
from gpuhook.engines.configure.containerd.containerd_handler import (
    BASE_SPEC,
    check_result,
    gpu_handler,
    is_ours,
    runtimes_of,
)
from gpuhook.engines.configure.containerd.containerd_target import HEADING, target_changes
from gpuhook.engines.configure.engine_plan import EnginePlan, ExpectedConfig
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import ReplacedFiles
from gpuhook.engines.read.containerd_files import CRI_KEYS
from gpuhook.engines.toml import toml_edit, toml_text
from gpuhook.engines.toml.toml_edit import Setting
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.engines.configure.containerd.containerd_handler import Handler
    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_plan import ConfigChange, EngineNode, EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd
    from gpuhook.engines.read.engine_config import Runtime
    from gpuhook.errors import GpuhookError


def plan(node: EngineNode, options: EngineOptions) -> EnginePlan:
    """Return the changes. Raises GH2000, GH2020 to GH2029, GH2713, GH2714, and OSError."""
    place = containerd_locations.containerd_location(node)
    read = reader.read(node.files, place.root, place.daemon)
    if options.route == "nri":
        return containerd_nri.plan_nri(node, place, read)
    handlers = {}
    for one in options.of_each_name():
        _check(read, node, one, place)
        handlers[one.name] = gpu_handler(read, one)
    notes = [note for handler in handlers.values() for note in handler.notes]
    base = []
    if options.route == "hook":
        made = base_spec.change(node, options.hook, handlers[options.name].base_spec)
        base = [made] if made else []
    if containerd_templates.is_needed(place, read):
        made_of = containerd_templates.plan(node, place, read, options, handlers)
        return replace(made_of, changes=(*base, *made_of.changes))
    settings = list(_settings(place, read, options, handlers))
    changes = target_changes(node, place, read, options, settings)
    after = read
    if place.kind == "file":
        files = ReplacedFiles({one.path: one.after for one in changes}, node.files)
        after = reader.read(files, place.root, place.daemon)
        where = changes[-1].path if changes else place.root
        check_result(where, read, after, options=options, handlers=handlers)
    notes += _notes(place, read, settings, changes)
    expected = _expected(place, options, handlers, after)
    # A file that a distribution generates is read by its own containerd alone.
    config = None if place.distribution else place.root
    return EnginePlan(
        "containerd", (*base, *changes), expected, place.service, tuple(notes), config
    )


def without(
    path: str,
    content: bytes,
    options: EngineOptions,
    before: bytes | None = None,
) -> bytes | None:
    """Do what `Engine.without` says. Raises GH2003 for a file, GH2027 for a result not of TOML."""
    if path == BASE_SPEC:
        return base_spec.without(content, options.hook)
    if containerd_templates.is_template(path):
        return containerd_templates.without(content, is_new=before is None)
    try:
        left = toml_text.without_marked_lines(content)
        for one in options.of_each_name():
            left = _without_handler(path, left, one, before or b"")
        document = toml_document.parsed(left)
    except toml_document.UnreadableTomlError as error:
        raise _unreadable(path, content, error) from error
    left = left.replace(f"{HEADING}\n".encode(), b"")
    # A comment that a user added is kept, also in a file that gpuhook created.
    if HEADING.encode() in content and not set(document) - {"version"} and b"#" not in left:
        return None
    return left


def _unreadable(
    path: str, content: bytes, error: toml_document.UnreadableTomlError
) -> GpuhookError:
    """Return the fault of a file that is not TOML: as it is, or without gpuhook's settings."""
    try:
        toml_document.parsed(content)
    except toml_document.UnreadableTomlError as own:
        return plan_checks.not_toml("containerd", path, own)
    reason = f"it is not valid TOML without gpuhook's settings: {error.reason}"
    return fault("GH2027", where=path, said=reason)


def _without_handler(path: str, content: bytes, options: EngineOptions, before: bytes) -> bytes:
    """Return a file without a handler that calls gpuhook's program and has no marks.

    The marks were removed by a user. The handler and the default get the values from `before`.
    """
    document, was = toml_document.parsed(content), toml_document.parsed(before)
    settings: list[Setting] = []
    for key in CRI_KEYS:
        names = ("plugins", key, "containerd")
        engine, old = toml_document.table(document, *names), toml_document.table(was, *names)
        handler = toml_document.table(engine, "runtimes", options.name)
        if options.program not in toml_document.table(handler, "options").values():
            continue
        table = toml_document.table(old, "runtimes").get(options.name)
        path_of_handler = (*names, "runtimes", options.name)
        if isinstance(table, dict):
            settings += _handler_settings(path_of_handler, handler, table)
        else:
            settings.append(Setting(path_of_handler, None))
        if engine.get("default_runtime_name") == options.name:
            name = "default_runtime_name"
            settings.append(Setting((*names, name), old.get(name)))
    removed = [one.path for one in settings if one.value is None]
    left = toml_edit.without_keys(path, content, removed) if removed else content
    return toml_text.without_marks(toml_edit.edited(path, left, settings))


def _check(
    read: Containerd, node: EngineNode, options: EngineOptions, place: ContainerdLocation
) -> None:
    plan_checks.require_readable(read.configuration)
    if not read.has_cri and not options.enables_cri:
        raise fault("GH2020", where=read.root)
    registered = _registered(read, node, options, place)
    is_replaceable = options.takes_over or containerd_templates.is_needed(place, read)
    if registered and not is_ours(registered, options) and not is_replaceable:
        program = registered.type or "containerd's own"
        raise plan_checks.name_in_use("containerd", registered, program)
    if options.route == "cdi" and not read.knows_cdi:
        version = plan_checks.dotted(read.daemon or ())
        reason = f"is read by containerd {version}, which does not support CDI"
        raise fault("GH2029", where=read.root, said=reason)
    if options.is_default and toml_document.table(read.cri, "containerd", "default_runtime").get(
        "runtime_type"
    ):
        raise fault(
            "GH2026",
            where=read.root,
            said="the old table default_runtime takes precedence over default_runtime_name",
            how="move it to its own handler below runtimes, and refer to that handler",
        )


def _registered(
    read: Containerd, node: EngineNode, options: EngineOptions, place: ContainerdLocation
) -> Runtime | None:
    """Return the runtime with that name, also from drop-ins that k0s has not read yet."""
    runtime = read.configuration.runtimes.get(options.name)
    if place.kind != "patch" or (runtime and not is_ours(runtime, options)):
        return runtime
    for name in node.files.names(containerd_locations.K0S_DROP_INS):
        path = f"{containerd_locations.K0S_DROP_INS}/{name}"
        one = reader.read(node.files, path).configuration.runtimes.get(options.name)
        if name.endswith(".toml") and one and not is_ours(one, options):
            return one
    return runtime


def _settings(
    place: ContainerdLocation,
    read: Containerd,
    options: EngineOptions,
    handlers: Mapping[str, Handler],
) -> Iterator[Setting]:
    """Yield the settings below the plugin's key, and the top-level `disabled_plugins`.

    A generated file may contain gpuhook's settings already: they are written all the same.
    """
    name, is_read = options.name, place.kind == "file"
    if not read.has_cri:
        kept = [one for one in read.disabled if one not in CRI_KEYS]
        yield Setting(("disabled_plugins",), kept)
    if read.knows_cdi and (not read.has_cdi or not (is_read or read.version >= 3)):
        yield Setting(("enable_cdi",), True)
    if options.is_default and not (is_read and read.configuration.default == name):
        yield Setting(("containerd", "default_runtime_name"), name)
    written = runtimes_of(read)
    if is_read and read.is_of_1 and not written:
        # A table of handlers replaces the built-in one of a containerd 1.x.
        yield Setting(("containerd", "runtimes", "runc"), {"runtime_type": reader.RUNC})
    for each, handler in handlers.items():
        existing = written.get(each) if is_read else None
        yield from _handler_settings(("containerd", "runtimes", each), existing, handler.table)


def _handler_settings(
    path: tuple[str, ...], existing: object, table: dict[str, object]
) -> Iterator[Setting]:
    """Yield a new table, or the keys that differ from an existing one."""
    if not isinstance(existing, dict):
        yield Setting(path, table)
        return
    for key, value in table.items():
        if isinstance(value, dict) and isinstance(existing.get(key), dict):
            yield from _handler_settings((*path, key), existing[key], value)
        elif existing.get(key) != value:
            yield Setting((*path, key), value)
    for key in existing:
        if key not in table:
            yield Setting((*path, key), None)


def _expected(
    place: ContainerdLocation,
    options: EngineOptions,
    handlers: Mapping[str, Handler],
    after: Containerd,
) -> ExpectedConfig:
    """Return the expected configuration; of a file that is generated at the next start, nothing."""
    if place.kind != "file":
        return ExpectedConfig({})
    programs = {name: handler.program for name, handler in handlers.items()}
    return ExpectedConfig(programs, options.default, after.has_cdi)


def _notes(
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
            yield containerd_locations.node_config(keyed)
    if read.configuration.cdi_enabled is False:
        yield "enable_cdi was false, and is now true"
    for one in read.ignored:
        if one.runtime.gives_gpus:
            by = f"{one.by} replaces it" if one.by else f"this containerd does not read {one.key}"
            yield f"{one.runtime.where}: the runtime {one.runtime.name} has no effect: {by}"
