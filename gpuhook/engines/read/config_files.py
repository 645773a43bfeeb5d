# SPDX-License-Identifier: Apache-2.0
"""The files that configurations are read from: of this machine or of a tree taken elsewhere."""

from __future__ import annotations

import fnmatch
import posixpath
from typing import Protocol


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
