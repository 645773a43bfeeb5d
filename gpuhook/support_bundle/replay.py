# SPDX-License-Identifier: Apache-2.0
"""A tree that answers from records: the node is somewhere else, or long gone."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from contextlib import suppress

from gpuhook.node.node_tree import MAX_FILE, Status, trouble
from gpuhook.support_bundle.bundle_records import LSTAT, NAMES, READ, REAL, STATUS
from gpuhook.support_bundle.reading_record import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.support_bundle.bundle_records import Records

_UNKNOWN = "nobody looked at it when the bundle was made"


class RecordedTree:
    """A Tree of records. What nobody asked the node, and is not known to be missing, is ENODATA."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._root = ""

    @property
    def root(self) -> str:
        """A directory with the contents that are known, made when it is first asked for.

        Its files are this user's own, plain ones: links and devices are in the records alone.
        """
        if not self._root:
            self._root = tempfile.mkdtemp(prefix="gpuhook-bundle-")
            weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            _write(self._records, self._root)
        return self._root

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the content of a file, cut after `limit` bytes; None if it was not there.

        Whose it was is not asked again: what was refused then is refused now.
        """
        del owner
        path = self._asked(READ, path)
        if path in self._records.contents:
            content = self._records.contents[path]
            return None if content is None else content[:limit]
        self._require_missing(path)
        return None

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it was not there."""
        path = self._asked(NAMES, path)
        if path in self._records.names:
            return list(self._records.names[path])
        self._require_missing(path)
        return []

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return what stat(2), or lstat(2), said of a path; None if nothing was there."""
        path = self._asked(STATUS if follow else LSTAT, path)
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
        """Return the path with every link resolved, None if it led nowhere."""
        path = self._asked(REAL, path)
        if path in self._records.reals:
            return self._records.reals[path]
        self._require_missing(path)
        return None

    def _asked(self, question: str, path: str) -> str:
        """Return the path as records have it; raises what was raised there."""
        path = plain(path)
        code = self._records.errors.get((question, path))
        if code is not None:
            raise trouble(code, path)
        return path

    def _require_missing(self, path: str) -> None:
        if not self._records.is_missing(path):
            raise OSError(errno.ENODATA, _UNKNOWN, path)


def _write(records: Records, root: str) -> None:
    """Write the known contents below `root`; what is file and directory at once is the latter."""
    # Records of somebody's making may contradict each other: then the first counts. A name that
    # this file system does not take is in the records alone.
    for path in records.names:
        with suppress(OSError, UnicodeError):
            os.makedirs(root + path, exist_ok=True)
    for path, content in sorted(records.contents.items()):
        if content is None:
            continue
        with suppress(OSError, UnicodeError):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            with open(root + path, "xb") as file:  # and of a directory IsADirectoryError
                file.write(content)
