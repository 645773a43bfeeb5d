# SPDX-License-Identifier: Apache-2.0
"""The files of a containerd's configuration, in the order in which containerd reads them.

See containerd's cmd/containerd/server/config/config.go: the file in the command line, then its
imports, then their imports, each once. Up to 1.7, a relative pattern begins at containerd's working
directory, which is / under systemd. A relative path begins at the directory of its file.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from typing import Any

from gpuhook.engines.read import toml_document
from gpuhook.engines.read.config_files import joined, matching
from gpuhook.engines.read.engine_config import ConfigPlace, Trouble
from gpuhook.engines.read.toml_document import TomlFile

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.engines.read.config_files import ConfigFiles
    from gpuhook.engines.read.engine_config import Version

CRI_OF_1 = "cri"
CRI_OF_2 = "io.containerd.grpc.v1.cri"
CRI_OF_3 = "io.containerd.cri.v1.runtime"
CRI_KEYS = (CRI_OF_1, CRI_OF_2, CRI_OF_3)
VERSION_OF_2 = 3  # the file version of containerd 2.0
_LISTS = ("imports", "disabled_plugins", "required_plugins")


@dataclass(frozen=True, slots=True)
class File(TomlFile):
    """A file of containerd."""

    @property
    def version(self) -> int:
        """Its version, 1 if it has none."""
        version = self.document.get("version")
        return int(version or 1) if _is_number(version) else 1

    @property
    def imports(self) -> tuple[str, ...]:
        """The files and patterns that it imports."""
        return toml_document.texts(self.document.get("imports"))


def read_all(
    files: ConfigFiles, path: str, daemon: Version | None
) -> tuple[tuple[File, ...], tuple[Trouble, ...]]:
    """Return the files and their problems; no files if `path` does not exist."""
    found: dict[str, File] = {}
    trouble: list[Trouble] = []
    pending = [(path, ConfigPlace(path))]
    while pending:
        current, named = pending.pop(0)
        if current in found:
            continue
        content = files.read(current)
        if content is None:
            if current != path:
                reason = f"imports {current}, which does not exist"
                trouble.append(Trouble(named, reason))
            continue
        try:
            file = File(current, content, toml_document.parsed(content))
        except toml_document.UnreadableTomlError as error:
            trouble.append(error.trouble(current))
            continue
        found[current] = file
        trouble += _type_problems(file)
        where = file.place("imports")
        pending += [(one, where) for one in _imported(files, file, daemon)]
    return tuple(found.values()), tuple(trouble)


def _is_number(version: Any) -> bool:
    return isinstance(version, int) and not isinstance(version, bool)


def _type_problems(file: File) -> Iterator[Trouble]:
    """Yield the values of a wrong type."""
    version = file.document.get("version", 0)
    if not _is_number(version):
        yield Trouble(file.place("version"), f"has version = {version!r}, which must be a number")
    for name in _LISTS:
        yield from toml_document.no_texts(file, (name,))
    plugins = file.document.get("plugins", {})
    if not isinstance(plugins, dict):
        yield Trouble(file.place("plugins"), "has plugins that is not a table")
        return
    for name, value in plugins.items():
        if not isinstance(value, dict):
            yield Trouble(file.place("plugins", name), f'has a plugin "{name}" that is not a table')


def _imported(files: ConfigFiles, file: File, daemon: Version | None) -> list[str]:
    found: list[str] = []
    for path in file.imports:
        is_pattern = "*" in path
        if is_pattern and not posixpath.isabs(path) and is_of_1(daemon, file.version):
            path = f"/{path}"
        path = joined(file.path, path)
        found += matching(files, path) if is_pattern else [path]
    return found


def may_read(daemon: Version | None, version: int) -> bool:
    """Return whether a containerd may be the one that reads a file of this version.

    Files of version 3 and later are for containerd 2.
    """
    return daemon is None or daemon >= (2,) or version < VERSION_OF_2


def is_of_1(daemon: Version | None, version: int) -> bool:
    """Return whether a containerd is a 1.x, by its own version, else by the file's."""
    return daemon < (2,) if daemon else version < VERSION_OF_2
