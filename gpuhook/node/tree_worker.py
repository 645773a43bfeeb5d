# SPDX-License-Identifier: Apache-2.0
"""The files of a node, read in a child process: a file that never answers blocks no command.

A file system of a dead server, or of a user's own program (FUSE), may never answer, and only
SIGKILL ends the wait of the process that reads it.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from gpuhook.host.worker import LATE, NoAnswerError, Worker
from gpuhook.node_facts.sources.node_tree import MAX_FILE, DirectoryTree, Status, trouble

SECONDS = 5.0  # for one call
_LATER = 1.0  # seconds, after some calls without an answer
_SOME = 2


class PatientTree:
    """The Tree of a directory. ETIMEDOUT for a file without an answer, and for its directory."""

    def __init__(self, root: str = "/", patience: float | None = None) -> None:
        """Take the tree at `root`, SECONDS for a call; GH1900 if that is not a directory."""
        tree = DirectoryTree(root)
        self.root = tree.root
        tree.close()
        self._patience = SECONDS if patience is None else patience
        self._worker: Worker | None = None
        self._silent: set[str] = set()  # directories

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the content of a file, cut after `limit` bytes; None if it does not exist."""
        found: bytes | None = self._call("read", path, limit=limit, owner=owner)
        return found

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""
        found: list[str] = self._call("names", path)
        return found

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return the result of stat(2), or lstat(2); None if nothing exists."""
        found: Status | None = self._call("status", path, follow=follow)
        return found

    def real(self, path: str) -> str | None:
        """Return the path with every link resolved, None if it leads nowhere."""
        found: str | None = self._call("real", path)
        return found

    def close(self) -> None:
        """End the child process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _call(self, method: str, path: str, **options: object) -> Any:
        place = os.path.dirname(path)
        if place in self._silent:
            raise trouble(errno.ETIMEDOUT, path)
        try:
            if self._worker is None:
                self._worker = Worker(lambda: _Answering(self.root), self._patience)
            code, result = self._worker.call("call", method, path, options)
        except NoAnswerError as error:
            raise self._lost_answer(path, place, error) from None
        if code:
            raise OSError(code, result, path)
        return result

    def _lost_answer(self, path: str, place: str, error: NoAnswerError) -> OSError:
        """End the child process; the next call starts another one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None
        if error.how != LATE:
            return OSError(errno.EIO, error.reason, path)
        self._silent.add(place)
        if len(self._silent) >= _SOME:
            self._patience = min(self._patience, _LATER)
        return trouble(errno.ETIMEDOUT, path)


class _Answering:
    """A tree whose calls return (0, result), or (errno, text of the error)."""

    def __init__(self, root: str) -> None:
        self._tree = DirectoryTree(root)  # the child has no descriptors of its parent

    def call(self, method: str, path: str, options: dict[str, Any]) -> tuple[int, Any]:
        """Return the result of a method of the tree."""
        try:
            return 0, getattr(self._tree, method)(path, **options)
        except OSError as error:
            return error.errno or errno.EIO, error.strerror or str(error)
