# SPDX-License-Identifier: Apache-2.0
"""What generate-cdi wrote on this node, and how: one file for each spec, below the state directory.

`gpuhook refresh` writes a spec again with the words it was asked for with. What was not said then
(a default, a setting of the settings file) is not kept: it counts as it is when the spec is written
again. Each record has a checksum: by words that were damaged another spec would be written.
"""

from __future__ import annotations

import os
from binascii import crc32
from dataclasses import asdict, dataclass, fields

from gpuhook import __version__
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, files, settings, state
from gpuhook.vendors.nvidia.driver import driver_locations, site_rules
from gpuhook.vendors.nvidia.hot import host_fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "gpuhook/generated/v1"
_MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Generated:
    """One spec: its path, the words that make it again, and what it was made from.

    `libcuda` is "" where the spec names none. `has_node` says whether its GPUs were asked for:
    then the fingerprint tells whether it is stale, else only making it again does. `files_dir` has
    the site's rules about the driver's files, and `inputs` is what inputs() said of them.
    """

    path: str
    words: list[str]
    host_root: str = "/"
    libcuda: str = ""
    fingerprint: str = ""
    has_node: bool = True
    identity: str = ""  # of the file as it was written
    files_dir: str = site_rules.DIRECTORY
    inputs: str = ""
    version: str = __version__


def directory() -> str:
    """Return where the records are."""
    return os.path.join(state.directory(), "generated")


def remember(made: Generated) -> None:
    """Keep how a spec was made; raises OSError."""
    os.makedirs(directory(), 0o755, exist_ok=True)
    document = {"schema": SCHEMA, **asdict(made)}
    document["checksum"] = _checksum(document)
    files.replace(_file(made.path), fastjson.dumps(document) + b"\n", mode=0o644)


def forget(path: str) -> None:
    """Drop the record of the spec at `path`, if there is one; raises OSError."""
    try:
        os.unlink(_file(path))
    except FileNotFoundError:
        return


def all_of_node() -> list[Generated]:
    """Return the usable records, by the paths of their specs."""
    try:
        names = sorted(os.listdir(directory()))
    except OSError:
        return []
    found = (_read(os.path.join(directory(), name)) for name in names if name.endswith(".json"))
    return sorted((one for one in found if one is not None), key=lambda one: one.path)


def identity(path: str) -> str:
    """Return what identifies this version of a file, "" where it is not there."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return files.version(found)


def inputs(files_dir: str) -> str:
    """Return what identifies the files of the node that say how a spec is made."""
    paths = (settings.path(), driver_locations.installed_file(), *_rules(files_dir))
    return "+".join(identity(path) for path in paths)


def _rules(files_dir: str) -> list[str]:
    try:
        names = sorted(os.listdir(files_dir))
    except OSError:
        return []
    return [os.path.join(files_dir, name) for name in names if name.endswith(".yaml")]


def changes(made: Generated) -> list[str]:
    """Return why a spec is no longer what would be written now, a phrase each; [] if it is."""
    found = host_fingerprint.changes(made)
    if made.inputs != inputs(made.files_dir):
        places = f"{settings.path()}, {driver_locations.installed_file()}"
        found.append(f"{places} or a file of {made.files_dir} was changed")
    if made.version != __version__:
        found.append(f"gpuhook: was {made.version}, is {__version__}")
    return found


def _file(path: str) -> str:
    name = f"{crc32(os.fsencode(path)):08x}-{os.path.basename(path)[-100:]}.json"
    return os.path.join(directory(), name)


def _checksum(document: dict[str, Any]) -> str:
    """Return the checksum of a record without its own."""
    return f"{crc32(fastjson.dumps(document)):08x}"


def _read(path: str) -> Generated | None:
    try:
        if not state.usable(os.lstat(path)):
            return None
        found = fastjson.loads(files.read(path, _MAX_SIZE))
    except (OSError, ValueError, GpuhookError):
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    if found.pop("checksum", None) != _checksum(found):
        return None
    kept: dict[str, Any] = {one.name: found.get(one.name) for one in fields(Generated)}
    words = kept["words"]
    texts = [value for name, value in kept.items() if name not in ("words", "has_node")]
    is_right = (
        isinstance(words, list)
        and all(isinstance(word, str) for word in words)
        and all(isinstance(text, str) for text in texts)
        and isinstance(kept["has_node"], bool)
    )
    return Generated(**kept) if is_right else None
