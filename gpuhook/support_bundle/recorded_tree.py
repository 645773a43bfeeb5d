# SPDX-License-Identifier: Apache-2.0
"""A tree that records its answers, and a tree that answers from the records."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from contextlib import contextmanager, suppress

from gpuhook.node_facts.sources.node_tree import MAX_FILE, Status, trouble
from gpuhook.support_bundle.bundle_records import LSTAT, NAMES, READ, REAL, STATUS, Records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.node_facts.sources.node_tree import Tree


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
        found = self._records.lstats.get(path) if follow else None
        if found is not None and not found.is_link:
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
    """Write the contents below `root`. A file that is a directory, too, is skipped."""
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
        with self._recording_errors(READ, path) as place:
            content = self._tree.read(place, limit, owner=owner)
        known = self.records.contents.get(place)
        if content is None or known is None or len(content) > len(known):
            self.records.contents[place] = content
        return content

    def names(self, path: str) -> list[str]:
        """Return the tree's answer, and record it."""
        with self._recording_errors(NAMES, path) as place:
            found = self.records.names[place] = self._tree.names(place)
        return list(found)

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return the tree's answer, and record it."""
        known = self.records.statuses if follow else self.records.lstats
        with self._recording_errors(STATUS if follow else LSTAT, path) as place:
            found = known[place] = self._tree.status(place, follow=follow)
        return found

    def real(self, path: str) -> str | None:
        """Return the tree's answer, and record it."""
        with self._recording_errors(REAL, path) as place:
            found = self.records.reals[place] = self._tree.real(place)
        return found

    @contextmanager
    def _recording_errors(self, question: str, path: str) -> Iterator[str]:
        """Give the normalised path; record the number of an OSError."""
        path = plain(path)
        try:
            yield path
        except OSError as error:
            self.records.errors[question, path] = error.errno or errno.EIO
            raise


def plain(path: str) -> str:
    """Return the normalised form of a path of the node."""
    return os.path.normpath("/" + path.lstrip("/"))
