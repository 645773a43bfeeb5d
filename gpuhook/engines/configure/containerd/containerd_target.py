# SPDX-License-Identifier: Apache-2.0
"""The file in which containerd's handler is written, and that file with it."""

from __future__ import annotations

import copy
import posixpath
from typing import Any

from gpuhook.engines.configure.containerd import containerd_templates
from gpuhook.engines.configure.containerd.containerd_handler import runtimes_of
from gpuhook.engines.configure.containerd.containerd_locations import K0S_DROP_INS
from gpuhook.engines.configure.engine_plan import ConfigChange
from gpuhook.engines.configure.toml import toml_edit
from gpuhook.engines.configure.toml.toml_lines import Setting
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
    from gpuhook.engines.configure.engine_options import EngineNode, EngineOptions
    from gpuhook.engines.read.containerd_config import Containerd
    from gpuhook.engines.read.containerd_files import File

HEADING = "# Written by gpuhook configure containerd; gpuhook configure undo containerd removes it."
DROP_INS = "/etc/containerd/conf.d"
NAME = "99-gpuhook.toml"
LAST_NAME = "zz-gpuhook.toml"  # where others come after 99


def placed(
    node: EngineNode,
    place: ContainerdLocation,
    read: Containerd,
    wanted: EngineOptions,
    settings: Sequence[Setting],
) -> tuple[ConfigChange, ...]:
    """Return the changes by which containerd reads all settings; raises GH2027."""
    found, _ = read_all(node.files, place.root, place.daemon)
    changed = [one for one in settings if one.path[0] == "disabled_plugins"]
    settings = [one for one in settings if one.path[0] != "disabled_plugins"]
    if place.kind != "file":
        directory = containerd_templates.drop_ins(place, read) or K0S_DROP_INS
        path = node.drop_in or f"{directory}/{_name(node, directory)}"
        version = read.version if found else 2
        return _drop_in(node, path, read, settings, version, carries=False)
    path = _drop_in_path(node, place, read, found, wanted) if settings else ""
    if not path:
        target = _target(place, read, found, wanted)
        keyed = _keyed(place, read, found, target, settings)
        if target is None or target.path == place.root:
            return _edit(node, place.root, [*changed, *keyed])
        return (*_edit(node, place.root, changed), *_edit(node, target.path, keyed))
    version = found[0].version if found else _new_version(place)
    if not found:
        changed.insert(0, Setting(("version",), version))
    changed += _imported(path, node, read, found)
    carries = not _merges(place)
    return (
        *_edit(node, place.root, changed),
        *_drop_in(node, path, read, settings, version, carries=carries),
    )


def _merges(place: ContainerdLocation) -> bool:
    return place.daemon is not None and place.daemon >= reader.MERGES_PLUGINS


def _drop_in_path(
    node: EngineNode,
    place: ContainerdLocation,
    read: Containerd,
    found: Sequence[File],
    wanted: EngineOptions,
) -> str:
    """Return the drop-in that is written, "" where a file that is there is edited instead.

    A drop-in is right where files are merged, or where nothing is said of the plugin elsewhere.
    """
    if node.drop_in or not found:
        return node.drop_in
    is_written = any(_plugin_keys(one) for one in found)
    if wanted.name in runtimes_of(read) or (is_written and not _merges(place)):
        return ""
    directory = _covered(read, found) or (DROP_INS if _merges(place) else "")
    return f"{directory}/{_name(node, directory)}" if directory else ""


def _imported(
    path: str, node: EngineNode, read: Containerd, found: Sequence[File]
) -> list[Setting]:
    """Return what has to be said so that a drop-in is imported."""
    directory = posixpath.dirname(path)
    if path in read.configuration.files or directory == _covered(read, found):
        return []
    pattern = path if node.drop_in else f"{directory}/*.toml"
    said = list(found[0].imports) if found else []
    return [Setting(("imports",), [*said, pattern])]


def _covered(read: Containerd, found: Sequence[File]) -> str:
    """Return the directory whose files containerd imports last, "" where there is none."""
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
    place: ContainerdLocation, read: Containerd, found: Sequence[File], wanted: EngineOptions
) -> File | None:
    """Return the file to edit: that has the handler, else the last that counts, else the first."""
    own = read.configuration.runtimes.get(wanted.name)
    counting = [one for one in found if _key_of(one, read, place) in _plugin_keys(one)]
    for one in counting:
        if own is not None and one.path == own.where.path:
            return one
    return counting[-1] if counting else (found[0] if found else None)


def _key_of(file: File, read: Containerd, place: ContainerdLocation) -> str:
    """Return the plugin's key below which containerd looks in this file."""
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


def _keyed(
    place: ContainerdLocation,
    read: Containerd,
    found: Sequence[File],
    target: File | None,
    settings: Sequence[Setting],
) -> list[Setting]:
    """Return settings below the plugin's key; a file that says nothing yet gets a version, too."""
    if target is not None and not (len(found) == 1 and _says_nothing(target)):
        key = _key_of(target, read, place)
        return [Setting(("plugins", key, *one.path), one.value) for one in settings]
    version = target.document.get("version") if target else None
    version = version or _new_version(place)
    key = CRI_OF_3 if version >= 3 else CRI_OF_2
    keyed = [Setting(("plugins", key, *one.path), one.value) for one in settings]
    return [Setting(("version",), version), *keyed] if settings else []


def _says_nothing(file: File) -> bool:
    """Return whether a file means the same in every version: it names no plugin but cri."""
    said = set(toml_document.texts(file.document.get("disabled_plugins"))) - set(CRI_KEYS)
    has_other = "plugins" in file.document or file.document.get("required_plugins")
    return not (said or has_other or file.imports)


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
        after = toml_edit.edited(content or b"", settings)
    except toml_edit.CannotError as error:
        raise fault("GH2027", where=path, said=str(error)) from error
    except toml_document.UnreadableTomlError as error:
        said = f"is no TOML: {error.reason}"
        raise fault("GH2003", where=path, said=said, engine="containerd") from error
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
    """Return the drop-in, which `carries` the plugin's whole table where files are not merged."""
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
        after = toml_edit.edited(content or b"", _joined(keyed))
    except (toml_edit.CannotError, toml_document.UnreadableTomlError) as error:
        raise fault("GH2027", where=path, said=str(error)) from error
    return () if after == before else (ConfigChange(path, before, after),)


def _joined(settings: list[Setting]) -> list[Setting]:
    """Return the one whole table that settings come to, where the first is such."""
    if not settings or len(settings[0].path) != 2:
        return settings
    first = settings[0]
    whole: Any = copy.deepcopy(first.value)
    for one in settings[1:]:
        place = whole
        for name in one.path[2:-1]:
            place = place.setdefault(name, {})
        if one.value is None:
            place.pop(one.path[-1], None)
        else:
            place[one.path[-1]] = one.value
    return [Setting(first.path, whole)]
