# SPDX-License-Identifier: Apache-2.0
"""The file that gets containerd's handler: the main file, an imported file or a drop-in."""

from __future__ import annotations

import copy
import posixpath
from typing import Any

from gpuhook.engines.configure import toml_edit
from gpuhook.engines.configure.containerd import containerd_templates
from gpuhook.engines.configure.containerd.containerd_handler import runtimes_of
from gpuhook.engines.configure.containerd.containerd_locations import K0S_DROP_INS
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.configure.toml_edit import Setting
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import joined
from gpuhook.engines.read.containerd_files import (
    CRI_KEYS,
    CRI_OF_1,
    CRI_OF_2,
    CRI_OF_3,
    is_of_1,
    read_all,
)
from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuhook.engines.configure.containerd.containerd_locations import ContainerdLocation
    from gpuhook.engines.configure.engine_plan import EngineNode, EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd
    from gpuhook.engines.read.containerd_files import File

HEADING = "# Written by gpuhook configure containerd; gpuhook configure undo containerd removes it."
DROP_INS = "/etc/containerd/conf.d"
NAME = "99-gpuhook.toml"
LAST_NAME = "zz-gpuhook.toml"  # if other names sort after NAME


def target_changes(
    node: EngineNode,
    place: ContainerdLocation,
    read: Containerd,
    options: EngineOptions,
    settings: Sequence[Setting],
) -> tuple[ConfigChange, ...]:
    """Return the changes after which containerd reads all settings. Raises GH2003, GH2027."""
    found, _ = read_all(node.files, place.root, place.daemon)
    changed = [one for one in settings if one.path[0] == "disabled_plugins"]
    settings = [one for one in settings if one.path[0] != "disabled_plugins"]
    if place.kind != "file":
        directory = containerd_templates.drop_ins(place, read) or K0S_DROP_INS
        path = node.drop_in or f"{directory}/{_name(node, directory)}"
        version = read.version if found else 2
        return _drop_in(node, path, read, settings, version, carries=False)
    path = _drop_in_path(node, place, read, found, options) if settings else ""
    if not path:
        target = _target(place, read, found, options)
        keyed = _plugin_settings(place, read, found, target, settings)
        if target is None or target.path == place.root:
            return _edit(node, place.root, [*changed, *keyed])
        return (*_edit(node, place.root, changed), *_edit(node, target.path, keyed))
    version = found[0].version if found else _new_version(place)
    if not found:
        changed.insert(0, Setting(("version",), version))
    changed += _imported(path, node, read, found)
    carries = not _merges_files(place)
    return (
        *_edit(node, place.root, changed),
        *_drop_in(node, path, read, settings, version, carries=carries),
    )


def _merges_files(place: ContainerdLocation) -> bool:
    return place.daemon is not None and place.daemon >= reader.MERGES_PLUGINS


def _drop_in_path(
    node: EngineNode,
    place: ContainerdLocation,
    read: Containerd,
    found: Sequence[File],
    options: EngineOptions,
) -> str:
    """Return the path of the drop-in, "" to edit an existing file instead.

    A drop-in works if containerd merges files, or if no other file has the plugin's table.
    """
    if node.drop_in or not found:
        return node.drop_in
    is_written = any(_plugin_keys(one) for one in found)
    if options.name in runtimes_of(read) or (is_written and not _merges_files(place)):
        return ""
    directory = _import_directory(read, found) or (DROP_INS if _merges_files(place) else "")
    return f"{directory}/{_name(node, directory)}" if directory else ""


def _imported(
    path: str, node: EngineNode, read: Containerd, found: Sequence[File]
) -> list[Setting]:
    """Return the setting that imports a drop-in, [] if it is imported already."""
    directory = posixpath.dirname(path)
    if path in read.configuration.files or directory == _import_directory(read, found):
        return []
    pattern = path if node.drop_in else f"{directory}/*.toml"
    imports = list(found[0].imports) if found else []
    return [Setting(("imports",), [*imports, pattern])]


def _import_directory(read: Containerd, found: Sequence[File]) -> str:
    """Return the directory whose files containerd imports last, "" for none."""
    for one in reversed(found[:1]):
        for pattern in reversed(one.imports):
            path = joined(one.path, pattern)
            if posixpath.basename(path) == "*.toml" and "*" not in posixpath.dirname(path):
                relative = not posixpath.isabs(pattern) and read.version < 3
                return "" if relative else posixpath.dirname(path)
    return ""


def _name(node: EngineNode, directory: str) -> str:
    names = [one for one in node.files.names(directory) if one.endswith(".toml")]
    if LAST_NAME in names:
        return LAST_NAME
    return LAST_NAME if any(one > NAME for one in names) else NAME


def _plugin_keys(file: File) -> list[str]:
    return [key for key in CRI_KEYS if toml_document.table(file.document, "plugins", key)]


def _target(
    place: ContainerdLocation, read: Containerd, found: Sequence[File], options: EngineOptions
) -> File | None:
    """Return the file to edit: the one with the handler, else with precedence, else the first."""
    own = read.configuration.runtimes.get(options.name)
    read_files = [one for one in found if _key_of(one, read, place) in _plugin_keys(one)]
    for one in read_files:
        if own is not None and one.path == own.where.path:
            return one
    return read_files[-1] if read_files else (found[0] if found else None)


def _key_of(file: File, read: Containerd, place: ContainerdLocation) -> str:
    """Return the plugin's key that containerd reads in this file."""
    if is_of_1(place.daemon, read.version):
        return read.key
    if file.version >= 3:
        return CRI_OF_3
    written = _plugin_keys(file)
    orders = {1: (CRI_OF_2, CRI_OF_1, CRI_OF_3), 2: (CRI_OF_2, CRI_OF_3)}
    order = orders[2] if file.version == 2 else orders[1]
    return next(
        (key for key in order if key in written), CRI_OF_1 if file.version == 1 else CRI_OF_2
    )


def _plugin_settings(
    place: ContainerdLocation,
    read: Containerd,
    found: Sequence[File],
    target: File | None,
    settings: Sequence[Setting],
) -> list[Setting]:
    """Return the settings below the plugin's key; a file without settings gets a version, too."""
    if target is not None and not (len(found) == 1 and _is_neutral(target)):
        key = _key_of(target, read, place)
        return [Setting(("plugins", key, *one.path), one.value) for one in settings]
    version = target.document.get("version") if target else None
    version = version or _new_version(place)
    key = CRI_OF_3 if version >= 3 else CRI_OF_2
    keyed = [Setting(("plugins", key, *one.path), one.value) for one in settings]
    return [Setting(("version",), version), *keyed] if settings else []


def _is_neutral(file: File) -> bool:
    """Return whether a file means the same in every version: it names only the plugin cri."""
    others = set(toml_document.texts(file.document.get("disabled_plugins"))) - set(CRI_KEYS)
    has_other = "plugins" in file.document or file.document.get("required_plugins")
    return not (others or has_other or file.imports)


def _new_version(place: ContainerdLocation) -> int:
    return 3 if place.daemon and place.daemon >= (2,) else 2


def _edit(node: EngineNode, path: str, settings: Sequence[Setting]) -> tuple[ConfigChange, ...]:
    before = node.files.read(path)
    if not settings:
        return ()
    content = before
    if before is None:
        version = [one for one in settings if one.path == ("version",)]
        content = f"{HEADING}\nversion = {version[0].value}\n".encode() if version else b""
    try:
        after = toml_edit.edited(path, content or b"", settings)
    except toml_document.UnreadableTomlError as error:
        reason = f"is not TOML: {error.reason}"
        raise fault("GH2003", where=path, said=reason, engine="containerd") from error
    return () if after == before else (ConfigChange(path, before, after),)


def _drop_in(
    node: EngineNode,
    path: str,
    read: Containerd,
    settings: Sequence[Setting],
    version: int,
    *,
    carries: bool,
) -> tuple[ConfigChange, ...]:
    """Return the drop-in. If it `carries` the plugin's table, it has a copy of the whole table."""
    key = {1: CRI_OF_1, 2: CRI_OF_2}.get(version, CRI_OF_3)
    before = node.files.read(path)
    content = before
    if before is None:
        content = f"{HEADING}\nversion = {version}\n".encode()
    is_read = path in read.configuration.files
    whole = dict(read.cri) if carries and not is_read else {}
    carried = [Setting(("plugins", key), whole)] if whole else []
    keyed = [*carried, *(Setting(("plugins", key, *one.path), one.value) for one in settings)]
    try:
        after = toml_edit.edited(path, content or b"", _combined(keyed))
    except toml_document.UnreadableTomlError as error:
        raise fault("GH2027", where=path, said=str(error)) from error
    return () if after == before else (ConfigChange(path, before, after),)


def _combined(settings: list[Setting]) -> list[Setting]:
    """Return one setting with all the others in it, if the first one is the plugin's table."""
    if not settings or len(settings[0].path) != 2:
        return settings
    first, *others = settings
    table: Any = copy.deepcopy(first.value)
    for one in others:
        toml_edit.apply_setting(table, Setting(one.path[2:], one.value))
    return [Setting(first.path, table)]
