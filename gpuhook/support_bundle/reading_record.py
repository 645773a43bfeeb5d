# SPDX-License-Identifier: Apache-2.0
"""A tree that writes down what it was asked, and what it answered."""

from __future__ import annotations

import errno
import os

from gpuhook.node.node_tree import MAX_FILE, Status
from gpuhook.support_bundle.bundle_records import LSTAT, NAMES, READ, REAL, STATUS, Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node.node_tree import Tree


class RecordingTree:
    """A Tree in front of another one; `records` has every answer."""

    def __init__(self, tree: Tree) -> None:
        self.root = tree.root
        self.records = Records()
        self._tree = tree

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return what the tree returns, and keep the most that was ever read."""
        path = plain(path)
        try:
            content = self._tree.read(path, limit, owner=owner)
        except OSError as error:
            raise self._failed(READ, path, error) from None
        known = self.records.contents.get(path)
        if content is None or known is None or len(content) > len(known):
            self.records.contents[path] = content
        return content

    def names(self, path: str) -> list[str]:
        """Return what the tree returns."""
        path = plain(path)
        try:
            found = self._tree.names(path)
        except OSError as error:
            raise self._failed(NAMES, path, error) from None
        self.records.names[path] = found
        return list(found)

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return what the tree returns."""
        path = plain(path)
        try:
            found = self._tree.status(path, follow=follow)
        except OSError as error:
            raise self._failed(STATUS if follow else LSTAT, path, error) from None
        known = self.records.statuses if follow else self.records.lstats
        known[path] = found
        return found

    def real(self, path: str) -> str | None:
        """Return what the tree returns."""
        path = plain(path)
        try:
            found = self._tree.real(path)
        except OSError as error:
            raise self._failed(REAL, path, error) from None
        self.records.reals[path] = found
        return found

    def _failed(self, question: str, path: str, error: OSError) -> OSError:
        self.records.errors[question, path] = error.errno or errno.EIO
        return error


def plain(path: str) -> str:
    """Return a path of the node's in the one form that records have."""
    return os.path.normpath("/" + path.lstrip("/"))
