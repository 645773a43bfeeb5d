# SPDX-License-Identifier: Apache-2.0
"""The files from which configurations are read: of this host, of a copied tree, or in memory."""

from __future__ import annotations

import fnmatch
import posixpath
from typing import Protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class ConfigFiles(Protocol):
    """The files of a node. Paths are absolute, as the node sees them."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist. Raises OSError."""

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it does not exist. Raises OSError."""


class ReplacedFiles:
    """Files in memory over the files `below`, if any. A content of None removes the file."""

    def __init__(
        self, contents: Mapping[str, bytes | None], below: ConfigFiles | None = None
    ) -> None:
        """Take contents by absolute path."""
        self._contents = dict(contents)
        self._below = below

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist. Raises OSError."""
        if path in self._contents:
            return self._contents[path]
        return self._below.read(path) if self._below else None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it does not exist. Raises OSError."""
        names = set(self._below.names(path) if self._below else ())
        directory = path.rstrip("/") + "/"
        for one, content in self._contents.items():
            name, _, deeper = one[len(directory) :].partition("/")
            if not one.startswith(directory):
                continue
            if content is not None:
                names.add(name)
            elif not deeper:
                names.discard(name)
        return sorted(names)


def matching(files: ConfigFiles, pattern: str) -> list[str]:
    """Return the sorted paths that match an absolute pattern, as Go's filepath.Glob does.

    A `*` matches names that begin with a dot, unlike in a shell.
    """
    paths = [""]
    for part in pattern.strip("/").split("/"):
        paths = [
            f"{place}/{name}"
            for place in paths
            for name in files.names(place or "/")
            if fnmatch.fnmatchcase(name, part)
        ]
    return paths


def joined(parent: str, path: str) -> str:
    """Return the absolute form of a path that the file `parent` names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(parent), path))
