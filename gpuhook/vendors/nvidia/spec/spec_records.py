# SPDX-License-Identifier: Apache-2.0
"""Records of the specs that generate-cdi wrote: one file per spec in the state directory.

`gpuhook refresh` writes a spec again with the recorded arguments. Values that were not given then
(a default, a setting of the settings file) are not recorded: the current ones apply. Each record
has a checksum: damaged arguments would write another spec.
"""

from __future__ import annotations

import os
from binascii import crc32
from contextlib import suppress
from dataclasses import asdict, dataclass, fields

from gpuhook import __version__
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import fastjson, files, settings, state
from gpuhook.host.installed_roots import installed_file
from gpuhook.vendors.nvidia.driver import site_rules
from gpuhook.vendors.nvidia.hot import host_fingerprint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCHEMA = "gpuhook/generated/v1"
_MAX_SIZE = 1 << 20


@dataclass(frozen=True, slots=True)
class Generated:
    """One spec: its path, the arguments that make it again, and its inputs.

    `libcuda` is "" if the spec names none. `has_node`: the spec has GPUs, so the fingerprint shows
    whether it is stale; otherwise only a new spec does. `files_dir` has the site's rules for the
    driver's files, and `inputs` is their inputs().
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
    return os.path.join(state.directory(), "generated")


def remember(made: Generated) -> None:
    """Write the record of a spec; raises OSError."""
    os.makedirs(directory(), 0o755, exist_ok=True)
    document = {"schema": SCHEMA, **asdict(made)}
    document["checksum"] = _checksum(document)
    files.replace(_file(made.path), fastjson.dumps(document) + b"\n", mode=0o644)


def forget(path: str) -> None:
    """Remove the record of the spec at `path`, if there is one; raises OSError."""
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
    """Return size, mtime and inode of a file as a text, "" if it does not exist."""
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return files.version(found)


def inputs(files_dir: str) -> str:
    """Return the identity of the node's files that determine a spec."""
    paths = [settings.path(), installed_file()]
    with suppress(OSError):
        paths += site_rules.rule_files(files_dir)
    return "+".join(map(identity, paths))


def changes(made: Generated) -> list[str]:
    """Return why a spec differs from one that is written now, a phrase each; [] if it does not."""
    found = host_fingerprint.changes(made)
    if made.inputs != inputs(made.files_dir):
        places = f"{settings.path()}, {installed_file()}"
        found.append(f"{places} or a file of {made.files_dir} was changed")
    if made.version != __version__:
        found.append(f"gpuhook: was {made.version}, is {__version__}")
    return found


def _file(path: str) -> str:
    name = f"{crc32(os.fsencode(path)):08x}-{os.path.basename(path)[-100:]}.json"
    return os.path.join(directory(), name)


def _checksum(document: dict[str, Any]) -> str:
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
