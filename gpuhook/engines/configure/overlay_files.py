# SPDX-License-Identifier: Apache-2.0
"""A host's files as they would be, with other contents of some of them."""

from __future__ import annotations

import posixpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuhook.engines.read.config_files import ConfigFiles


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
