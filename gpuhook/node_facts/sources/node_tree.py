# SPDX-License-Identifier: Apache-2.0
"""The files of a node: of this machine, or of a tree that was copied from another one.

Paths are the node's own and absolute. Links are resolved inside the tree, so that an absolute link
of another node leads to that node's file and not to one of this machine.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from gpuhook.errors import fault
from gpuhook.kernel.openat2 import openat2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FILE = 16 << 20  # bytes
MOST_NAMES = 200_000  # in a directory
_NULL = os.makedev(1, 3)  # the target of a masked file: systemd.unit(5)
_WORDED = {
    errno.EINVAL: "it is not a regular file",
    errno.E2BIG: f"it has more than {MOST_NAMES} entries",
    errno.EXDEV: "it belongs to another user, or leads outside its root",
    errno.ETIMEDOUT: "it does not answer",
}
_MISSING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Status:
    """The result of lstat(2): mode with its type, owner, numbers of a device, size, times.

    `target` is that of a symbolic link, else "".
    """

    mode: int
    uid: int
    gid: int
    major: int
    minor: int
    size: int
    mtime: float  # seconds of the epoch
    target: str = ""

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat.S_ISREG(self.mode)

    @property
    def is_directory(self) -> bool:
        """Whether it is a directory."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether it is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def is_character_device(self) -> bool:
        """Whether it is a character device node."""
        return stat.S_ISCHR(self.mode)

    @property
    def is_executable(self) -> bool:
        """Whether it is a file that a user may run."""
        return self.is_file and bool(self.mode & 0o111)

    @property
    def permissions(self) -> int:
        """The permission bits."""
        return stat.S_IMODE(self.mode)


class Tree(Protocol):
    """The files of a node. A missing file is None or empty; a file without permission raises.

    `root` is a directory of this machine in which the contents of these files can be opened: "/"
    for this machine itself. Every method raises OSError with the node's path.
    """

    @property
    def root(self) -> str:
        """The directory."""

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the content of a file, cut after `limit` bytes; None if it does not exist.

        Only regular files are opened: a device may act on that. Raises EINVAL for others, and EXDEV
        for a file that does not belong to the user `owner`, if that is not None.
        """

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return the result of stat(2), or lstat(2); None if nothing exists."""

    def real(self, path: str) -> str | None:
        """Return the path with every link resolved, None if it leads nowhere."""


class DirectoryTree:
    """A Tree in a directory: `root` is "/" for this machine."""

    def __init__(self, root: str = "/") -> None:
        """Open the tree at `root`; GH1900 if that is not a directory."""
        self.root = os.path.realpath(root)
        try:
            self._fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise fault("GH1900", path=root, reason=error.strerror or error) from error

    def close(self) -> None:
        """Close the directory."""
        os.close(self._fd)

    def read(self, path: str, limit: int = MAX_FILE, *, owner: int | None = None) -> bytes | None:
        """Return the content of a file, cut after `limit` bytes; None if it does not exist."""
        with self._opened(path, os.O_PATH) as fd:
            if fd is None:
                return None
            found = os.fstat(fd)
            if stat.S_ISDIR(found.st_mode):
                return None
            if stat.S_ISCHR(found.st_mode) and found.st_rdev == _NULL:
                return b""
            if not stat.S_ISREG(found.st_mode):
                raise trouble(errno.EINVAL, path)
            if owner not in (None, found.st_uid):
                raise trouble(errno.EXDEV, path)
            return _read(f"/proc/self/fd/{fd}", limit)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it does not exist."""
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as fd:
            return [] if fd is None else sorted(_names(fd, path))

    def status(self, path: str, *, follow: bool = True) -> Status | None:
        """Return the result of stat(2), or lstat(2); None if nothing exists."""
        flags = os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW
        with self._opened(path, flags) as fd:
            if fd is None:
                return None
            found = os.fstat(fd)
            is_link = stat.S_ISLNK(found.st_mode)
            return _status(found, os.readlink("", dir_fd=fd) if is_link else "")

    def real(self, path: str) -> str | None:
        """Return the path with every link resolved, None if it leads nowhere."""
        with self._opened(path, os.O_PATH) as fd:
            if fd is None:
                return None
            place = os.readlink(f"/proc/self/fd/{fd}")
        if self.root == "/":
            return place
        return os.path.normpath("/" + os.path.relpath(place, self.root))

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[int | None]:
        try:
            fd = openat2(self._fd, path.lstrip("/") or ".", flags)
        except _MISSING:
            yield None
            return
        except OSError as error:
            error.filename = path
            raise
        try:
            yield fd
        except OSError as error:
            error.filename = path
            raise
        finally:
            os.close(fd)


def text(tree: Tree, path: str, limit: int = MAX_FILE) -> str | None:
    """Return the content of a file as text, None if it does not exist; raises OSError."""
    content = tree.read(path, limit)
    return None if content is None else content.decode("utf-8", "replace")


def line(tree: Tree, path: str) -> str:
    """Return the first line of a file without white space around it, "" if it does not exist."""
    return (text(tree, path, 65536) or "").partition("\n")[0].strip()


def matching(tree: Tree, pattern: str) -> list[str]:
    """Return the paths that match a shell pattern, sorted, such as /etc/cdi/*.yaml."""
    found = [""]
    for part in pattern.strip("/").split("/"):
        if any(mark in part for mark in "*?["):
            found = [
                f"{place}/{name}"
                for place in found
                for name in tree.names(place or "/")
                if fnmatch.fnmatchcase(name, part)
            ]
        else:
            found = [f"{place}/{part}" for place in found]
    return [path for path in found if tree.status(path, follow=False) is not None]


def trouble(code: int, path: str) -> OSError:
    """Return the error of a path of the node, with the text that every tree uses."""
    return OSError(code, _WORDED.get(code) or os.strerror(code), path)


def _names(fd: int, path: str) -> list[str]:
    found = []
    with os.scandir(fd) as entries:
        for entry in entries:
            found.append(entry.name)
            if len(found) > MOST_NAMES:
                raise trouble(errno.E2BIG, path)
    return found


def _read(place: str, limit: int) -> bytes:
    """Return up to `limit` bytes: files of /proc and /sys do not have a length."""
    fd = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        return _content(fd, limit)
    finally:
        os.close(fd)


def _content(fd: int, limit: int) -> bytes:
    chunks: list[bytes] = []
    left = limit
    while left > 0:
        try:
            chunk = os.read(fd, min(left, 1 << 20))
        except BlockingIOError:  # a file of /proc without data yet
            break
        if not chunk:
            break
        chunks.append(chunk)
        left -= len(chunk)
    return b"".join(chunks)


def _status(found: os.stat_result, target: str) -> Status:
    is_device = stat.S_ISCHR(found.st_mode) or stat.S_ISBLK(found.st_mode)
    return Status(
        mode=found.st_mode,
        uid=found.st_uid,
        gid=found.st_gid,
        major=os.major(found.st_rdev) if is_device else 0,
        minor=os.minor(found.st_rdev) if is_device else 0,
        size=found.st_size,
        mtime=found.st_mtime,
        target=target,
    )
