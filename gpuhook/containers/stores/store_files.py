# SPDX-License-Identifier: Apache-2.0
"""The files of engines' stores: those of root or this user, and those of another user."""

from __future__ import annotations

import os
import stat
from typing import Any, Protocol

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files, state

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class StoreFiles(Protocol):
    """The files of a node. Paths are absolute."""

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist or is not read."""

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it does not exist or is not read."""


class OwnFiles:
    """Files that root or this user owns; others are not read."""

    MOST = 64 << 20  # bytes of a file

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it cannot be read or trusted."""
        return state.read(path, self.MOST)

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it cannot be read."""
        try:
            return sorted(os.listdir(path))
        except (OSError, ValueError):
            return []


class UserFiles:
    """Files of another user below that user's home directory, with bounds in bytes.

    Only regular files that the user owns are read, and no link below the home directory is
    followed. The paths begin with the home directory.
    """

    MOST = 16 << 20  # bytes of a file
    SUM = 32 << 20

    def __init__(self, user: int, home: str) -> None:
        """Raises OSError if the home directory cannot be opened."""
        self._user = user
        self._home = home.rstrip("/")
        self._fd = os.open(home, _DIRECTORY)
        self._left = self.SUM

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it cannot be read, or the sum is reached."""
        try:
            fd = self._opened(path, _FILE)
        except OSError:
            return None
        try:
            found = os.fstat(fd)
            if found.st_uid != self._user or not stat.S_ISREG(found.st_mode):
                return None
            content = files.read_descriptor(fd, path, min(self.MOST, self._left))
        except (OSError, GpuhookError):
            return None
        finally:
            os.close(fd)
        self._left -= len(content)
        return content

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it cannot be read."""
        try:
            fd = self._opened(path, _DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            return []
        try:
            return sorted(os.listdir(fd))
        finally:
            os.close(fd)

    def _opened(self, path: str, flags: int) -> int:
        """Return a descriptor of a path, which no link has led to."""
        parts = path[len(self._home) :].strip("/").split("/")
        at = os.dup(self._fd)
        try:
            for part in parts[:-1]:
                below = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = below
            return os.open(parts[-1], flags, dir_fd=at)
        finally:
            os.close(at)


def document(content: bytes | None) -> dict[str, Any]:
    """Return a JSON object, {} for anything else."""
    try:
        return documents.parse_json_object(content or b"{}")
    except ValueError:
        return {}


def table(value: object) -> dict[str, Any]:
    """Return a value that must be a JSON object, {} for another type."""
    return value if isinstance(value, dict) else {}
