# SPDX-License-Identifier: Apache-2.0
"""The files that configurations are read from: of this machine or of a tree taken elsewhere."""

from __future__ import annotations

import fnmatch
import posixpath
from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles


class ConfigFiles(Protocol):
    """What a reader of configurations needs of a node's files. Paths are the node's own."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it is not there; raises OSError."""

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it is not there; raises OSError."""


def matching(files: ConfigFiles, pattern: str) -> list[str]:
    """Return the paths that match an absolute pattern, sorted, as Go's filepath.Glob finds them.

    Names that begin with a dot match a `*`, which the shell's do not.
    """
    found = [""]
    for part in pattern.strip("/").split("/"):
        found = [
            f"{place}/{name}"
            for place in found
            for name in files.names(place or "/")
            if fnmatch.fnmatchcase(name, part)
        ]
    return found


def joined(parent: str, path: str) -> str:
    """Return a path that a file at `parent` names, absolute."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(parent), path))


class Replaced:
    """The files of `below`, but those of `contents` as it says; None is one that is not there."""

    def __init__(self, below: ConfigFiles, contents: Mapping[str, bytes | None]) -> None:
        """Take absolute paths."""
        self._below = below
        self._contents = dict(contents)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it is not there; raises OSError."""
        if path in self._contents:
            return self._contents[path]
        return self._below.read(path)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; raises OSError."""
        found = set(self._below.names(path))
        place = path.rstrip("/") + "/"
        for one, content in self._contents.items():
            name, _, deeper = one[len(place) :].partition("/")
            if not one.startswith(place):
                continue
            if content is not None:
                found.add(name)
            elif not deeper:
                found.discard(posixpath.basename(one))
        return sorted(found)
