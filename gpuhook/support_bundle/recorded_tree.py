# SPDX-License-Identifier: Apache-2.0
"""A tree that records its answers, and a tree that answers from the records."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from contextlib import suppress

from gpuhook.node.node_tree import MAX_FILE, Status, trouble
from gpuhook.support_bundle.bundle_records import LSTAT, NAMES, READ, REAL, STATUS, Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node.node_tree import Tree


_UNKNOWN = "not recorded when the bundle was created"


class RecordedTree:
    """A Tree of records. A question without a record raises ENODATA, unless the path is missing."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._root = ""

    @property
    def root(self) -> str:
        """A directory with the recorded contents, created at the first access.

        It has regular files of this user: links and devices are only in the records.
        """
        if not self._root:
            self._root = tempfile.mkdtemp(prefix="gpuhook-bundle-")
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            _write(self._records, self._root)
        return self._root

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the content of a file, cut after `limit` bytes; None if it did not exist.

        The owner is not checked again: what was refused then is refused now.
        """
        del owner
        path = self._recorded_path(READ, path)
        if path in self._records.contents:
            content = self._records.contents[path]
            return None if content is None else content[:limit]
        self._require_missing(path)
        return None

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it did not exist."""
        path = self._recorded_path(NAMES, path)
        if path in self._records.names:
            return list(self._records.names[path])
        self._require_missing(path)
        return []

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return the result of stat(2) or lstat(2), None if the path did not exist."""
        path = self._recorded_path(STATUS if follow else LSTAT, path)
        known = self._records.statuses if follow else self._records.lstats
        if path in known:
            return known[path]
        other = self._records.lstats if follow else self._records.statuses
        found = other.get(path)
        if found is not None and follow and not found.is_link:
            return found
        self._require_missing(path)
        return None

    def real(self, path: str) -> str | None:
        """Return the path with every link resolved, None if the target did not exist."""
        path = self._recorded_path(REAL, path)
        if path in self._records.reals:
            return self._records.reals[path]
        self._require_missing(path)
        return None

    def _recorded_path(self, question: str, path: str) -> str:
        """Return the normalised path. Raises the recorded error."""
        path = plain(path)
        code = self._records.errors.get((question, path))
        if code is not None:
            raise trouble(code, path)
        return path

    def _require_missing(self, path: str) -> None:
        if not self._records.is_missing(path):
            raise OSError(errno.ENODATA, _UNKNOWN, path)


def _write(records: Records, root: str) -> None:
    """Write the contents below `root`. A file that is a directory, too, is left out."""
    # Forged records may contradict each other: the first one applies. A name that this file
    # system does not support is only in the records.
    for path in records.names:
        with suppress(OSError, UnicodeError):
            os.makedirs(root + path, exist_ok=True)
    for path, content in sorted(records.contents.items()):
        if content is None:
            continue
        with suppress(OSError, UnicodeError):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            with open(root + path, "xb") as file:  # IsADirectoryError for a directory
                file.write(content)


class RecordingTree:
    """A Tree that forwards to another one; `records` has every answer."""

    def __init__(self, tree: Tree) -> None:
        self.root = tree.root
        self.records = Records()
        self._tree = tree

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the tree's answer, and record the longest content that was read."""
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
        """Return the tree's answer, and record it."""
        path = plain(path)
        try:
            found = self._tree.names(path)
        except OSError as error:
            raise self._failed(NAMES, path, error) from None
        self.records.names[path] = found
        return list(found)

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return the tree's answer, and record it."""
        path = plain(path)
        try:
            found = self._tree.status(path, follow=follow)
        except OSError as error:
            raise self._failed(STATUS if follow else LSTAT, path, error) from None
        known = self.records.statuses if follow else self.records.lstats
        known[path] = found
        return found

    def real(self, path: str) -> str | None:
        """Return the tree's answer, and record it."""
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
    """Return the normalised form of a path of the node."""
    return os.path.normpath("/" + path.lstrip("/"))
