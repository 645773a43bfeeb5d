# SPDX-License-Identifier: Apache-2.0
"""The file that gets containerd's handler: the main file, an imported file or a drop-in."""

from __future__ import annotations

import copy
import posixpath
from typing import Any

from gpuhook.engines.configure import plan_checks
from gpuhook.engines.configure.containerd import containerd_templates
from gpuhook.engines.configure.containerd.containerd_handler import runtimes_of
from gpuhook.engines.configure.containerd.containerd_locations import K0S_DROP_INS
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.read import containerd_config as reader
from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import joined
from gpuhook.engines.read.containerd_files import (
    CRI_KEYS,
    CRI_OF_1,
    CRI_OF_2,
    CRI_OF_3,
)
from gpuhook.engines.toml import toml_edit
from gpuhook.engines.toml.toml_edit import Setting
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
    changed = [one for one in settings if one.path[0] == "disabled_plugins"]
    settings = [one for one in settings if one.path[0] != "disabled_plugins"]
    if place.kind != "file":
        directory = containerd_templates.drop_ins(place, read) or K0S_DROP_INS
        path = node.drop_in or f"{directory}/{_name(node, directory)}"
        version = read.version if read.files else 2
        return _drop_in(node, path, read, settings, version, carries=False)
    path = _drop_in_path(node, read, options) if settings else ""
    if not path:
        target = _target(read, options)
        keyed = _plugin_settings(read, target, settings)
        if target is None or target.path == read.root:
            return edited_file(node, read.root, [*changed, *keyed])
        return (*edited_file(node, read.root, changed), *edited_file(node, target.path, keyed))
    version = read.version
    if not read.files:
        version = new_version(read)
        changed.insert(0, Setting(("version",), version))
    changed += _imported(path, node, read)
    return (
        *edited_file(node, read.root, changed),
        *_drop_in(node, path, read, settings, version, carries=not _merges_files(read)),
    )


def _merges_files(read: Containerd) -> bool:
    return read.daemon is not None and read.daemon >= reader.MERGES_PLUGINS


def _drop_in_path(node: EngineNode, read: Containerd, options: EngineOptions) -> str:
    """Return the path of the drop-in, "" to edit an existing file instead.

    A drop-in works if containerd merges files, or if no other file has the plugin's table.
    """
    if node.drop_in or not read.files:
        return node.drop_in
    is_written = any(_plugin_keys(one) for one in read.files)
    if options.name in runtimes_of(read) or (is_written and not _merges_files(read)):
        return ""
    directory = _import_directory(read) or (DROP_INS if _merges_files(read) else "")
    return f"{directory}/{_name(node, directory)}" if directory else ""


def _imported(path: str, node: EngineNode, read: Containerd) -> list[Setting]:
    """Return the setting that imports a drop-in, [] if it is imported already."""
    directory = posixpath.dirname(path)
    if path in read.configuration.files or directory == _import_directory(read):
        return []
    pattern = path if node.drop_in else f"{directory}/*.toml"
    imports = list(read.files[0].imports) if read.files else []
    return [Setting(("imports",), [*imports, pattern])]


def _import_directory(read: Containerd) -> str:
    """Return the directory whose files containerd imports last, "" for none."""
    for pattern in reversed(read.files[0].imports if read.files else ()):
        path = joined(read.root, pattern)
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


def _target(read: Containerd, options: EngineOptions) -> File | None:
    """Return the file to edit: the one with the handler, else with precedence, else the first."""
    own = read.configuration.runtimes.get(options.name)
    read_files = [one for one in read.files if _key_of(one, read) in _plugin_keys(one)]
    for one in read_files:
        if own is not None and one.path == own.where.path:
            return one
    return read_files[-1] if read_files else (read.files[0] if read.files else None)


def _key_of(file: File, read: Containerd) -> str:
    """Return the plugin's key that containerd reads in this file, or would read."""
    keys, written = read.keys_in(file), _plugin_keys(file)
    usual = CRI_OF_1 if file.version == 1 and len(keys) > 1 else keys[0]
    return next((key for key in keys if key in written), usual)


def _plugin_settings(
    read: Containerd, target: File | None, settings: Sequence[Setting]
) -> list[Setting]:
    """Return the settings below the plugin's key; a file without settings gets a version, too."""
    version = []
    if target is not None and not (len(read.files) == 1 and _is_neutral(target)):
        key = _key_of(target, read)
    else:
        number = (target.document.get("version") if target else None) or new_version(read)
        key = CRI_OF_3 if number >= 3 else CRI_OF_2
        version = [Setting(("version",), number)] if settings else []
    return [*version, *(Setting(("plugins", key, *one.path), one.value) for one in settings)]


def _is_neutral(file: File) -> bool:
    """Return whether a file means the same in every version: it names only the cri plugin."""
    others = set(toml_document.texts(file.document.get("disabled_plugins"))) - set(CRI_KEYS)
    has_other = "plugins" in file.document or file.document.get("required_plugins")
    return not (others or has_other or file.imports)


def new_version(read: Containerd) -> int:
    """Return the version of a new file of a containerd."""
    return 3 if read.daemon and read.daemon >= (2,) else 2


def edited_file(
    node: EngineNode, path: str, settings: Sequence[Setting]
) -> tuple[ConfigChange, ...]:
    """Return the change of a file; a new one needs a setting `version`. Raises GH2003, GH2027."""
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
        raise plan_checks.not_toml("containerd", path, error) from error
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
    except (TypeError, toml_document.UnreadableTomlError) as error:
        raise fault("GH2027", where=path, said=str(error)) from error
    return () if after == before else (ConfigChange(path, before, after),)


def _combined(settings: list[Setting]) -> list[Setting]:
    """Return one setting with all the others in it, if the first one is the plugin's table.

    Raises TypeError if a parent of a setting is not a table.
    """
    if not settings or len(settings[0].path) != 2:
        return settings
    first, *others = settings
    table: Any = copy.deepcopy(first.value)
    for one in others:
        toml_edit.apply_setting(table, Setting(one.path[2:], one.value))
    return [Setting(first.path, table)]
