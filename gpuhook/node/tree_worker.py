# SPDX-License-Identifier: Apache-2.0
"""The files of a node, looked at with patience: one that does not answer keeps nobody waiting.

A file system of a dead server, or of somebody's own making (FUSE), answers when it likes, and
nothing but SIGKILL ends the wait of who asks. So a process of its own asks.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from gpuhook.host.worker import LATE, NoAnswerError, Worker
from gpuhook.node.node_tree import MAX_FILE, DirectoryTree, Status, trouble

PATIENCE = 5.0  # seconds for one question
_LATER = 1.0  # seconds, when some have been waited for in vain
_SOME = 2


class PatientTree:
    """The Tree of a directory. What does not answer is ETIMEDOUT, with all that is beside it."""

    def __init__(self, root: str = "/", patience: float = PATIENCE) -> None:
        """Take the tree at `root`; GH1900 if that is no directory."""
        tree = DirectoryTree(root)
        self.root = tree.root
        tree.close()
        self._patience = patience
        self._worker: Worker | None = None
        self._silent: set[str] = set()  # directories

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the content of a file, cut after `limit` bytes; None if it is not there."""
        found: bytes | None = self._asked("read", path, limit, owner)
        return found

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it is not there."""
        found: list[str] = self._asked("names", path)
        return found

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return what stat(2), or lstat(2), says of a path; None if nothing is there."""
        found: Status | None = self._asked("status", path, follow)
        return found

    def real(self, path: str) -> str | None:
        """Return the path with every link resolved, None if it leads nowhere."""
        found: str | None = self._asked("real", path)
        return found

    def close(self) -> None:
        """Let go of the process."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def _asked(self, question: str, path: str, *more: object) -> Any:
        place = os.path.dirname(path)
        if place in self._silent:
            raise trouble(errno.ETIMEDOUT, path)
        try:
            if self._worker is None:
                self._worker = Worker(lambda: _Answering(self.root), self._patience)
            code, told = self._worker.call(question, path, *more)
        except NoAnswerError as error:
            raise self._given_up(path, place, error) from None
        if code:
            raise OSError(code, told, path)
        return told

    def _given_up(self, path: str, place: str, error: NoAnswerError) -> OSError:
        """Let go of the process, the next question starts another one."""
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
    """A tree that answers (0, what was found), or (errno, the words of the error)."""

    def __init__(self, root: str) -> None:
        self._tree = DirectoryTree(root)  # descriptors of the parent are not this process's

    def read(self, path: str, limit: int, owner: int | None) -> tuple[int, Any]:
        return self._answer(lambda: self._tree.read(path, limit, owner=owner))

    def names(self, path: str) -> tuple[int, Any]:
        return self._answer(lambda: self._tree.names(path))

    def status(self, path: str, follow: bool) -> tuple[int, Any]:
        return self._answer(lambda: self._tree.status(path, follow=follow))

    def real(self, path: str) -> tuple[int, Any]:
        return self._answer(lambda: self._tree.real(path))

    @staticmethod
    def _answer(ask: Any) -> tuple[int, Any]:
        try:
            return 0, ask()
        except OSError as error:
            return error.errno or errno.EIO, error.strerror or str(error)
