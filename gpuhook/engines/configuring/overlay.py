# SPDX-License-Identifier: Apache-2.0
"""A node's files with changes over them: what is planned is read before it is written."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.engines.configuring.plan import Change
    from gpuhook.engines.files import Files


class Overlay:
    """Files with changes over them."""

    def __init__(self, files: Files, changes: Iterable[Change]) -> None:
        """Take the files below, and the changes."""
        self._files = files
        self._changed = {one.path: one.after for one in changes}

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it is not there; raises OSError."""
        return self._changed[path] if path in self._changed else self._files.read(path)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it is not there; raises OSError."""
        found = set(self._files.names(path))
        before = path if path.endswith("/") else f"{path}/"
        for one, after in self._changed.items():
            if one.startswith(before):
                name, _, below = one[len(before) :].partition("/")
                if after is not None:
                    found.add(name)
                elif not below:
                    found.discard(name)
        return sorted(found)
