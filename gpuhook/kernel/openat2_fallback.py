# SPDX-License-Identifier: Apache-2.0
"""openat2(2) with RESOLVE_IN_ROOT, step by step: for kernels that do not have it.

Each component is opened with O_NOFOLLOW from the directory before it; links are read and resolved
here and never lead out of the root, whichever process changes them meanwhile. `..` is the directory
that the walk came from, not what the file system says by then. Nothing is ever opened by more than
one component. Source of the rules: path_resolution(7), openat2(2), and for magic links proc(5).
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.host.hot.files import MAX_LINKS
from gpuhook.kernel.mounts import is_proc

_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 256  # each is a descriptor
_MAX_PATH = 4096
_TRIES = 32
_PROC_ROOT = 1  # the inode of its root: PROC_ROOT_INO


def opened(root: int, path: str, flags: int) -> int:
    """Return a descriptor of `path` in the root behind `root`, opened with `flags`.

    `flags` open an existing file. Raises OSError with the path, and the numbers of openat2(2):
    ENOENT, ENOTDIR, ELOOP for too many links or a magic one, EAGAIN if the last component keeps
    changing between a link and another file.
    """
    if not path:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if len(os.fsencode(path)) >= _MAX_PATH:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
    walk = _Walk(root, flags | os.O_CLOEXEC)
    try:
        return walk.to(path)
    except OSError as error:
        error.filename = path  # the walk knows one component
        raise
    finally:
        walk.close()


class _Walk:
    """One walk: the open directories from the root to the current one, with their names."""

    def __init__(self, root: int, flags: int) -> None:
        self._flags = flags
        self._links = 0
        self._tries = 0
        self._stack = [(os.open(".", _ENTRY | os.O_DIRECTORY, dir_fd=root), "")]

    def close(self) -> None:
        for fd, _ in self._stack:
            os.close(fd)
        self._stack = []

    def to(self, path: str) -> int:
        pending = _components(path)
        while pending:
            name = pending.pop()
            if name == "..":
                self._leave()
            elif name != ".":
                found = self._step(name, pending)
                if found is not None:
                    return found
        # A path that ends with a slash or dots is the current directory.
        return os.open(".", self._flags & ~os.O_NOFOLLOW, dir_fd=self._stack[-1][0])

    def _leave(self) -> None:
        if len(self._stack) > 1:
            fd, _ = self._stack.pop()
            os.close(fd)

    def _step(self, name: str, pending: list[str]) -> int | None:
        """Take one component; returns the requested descriptor if it is the last one."""
        here = self._stack[-1][0]
        fd = os.open(name, _ENTRY, dir_fd=here)
        try:
            kind = stat.S_IFMT(os.fstat(fd).st_mode)
            is_last = not pending
            if kind == stat.S_IFLNK and not (is_last and self._flags & os.O_NOFOLLOW):
                self._follow(fd, pending)
                return None
            if is_last:
                return self._last(name, here, fd, kind, pending)
            if kind != stat.S_IFDIR:
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
            if len(self._stack) > _MAX_DEPTH:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), name)
            self._stack.append((fd, name))
            fd = -1
            return None
        finally:
            if fd >= 0:
                os.close(fd)

    def _last(self, name: str, here: int, fd: int, kind: int, pending: list[str]) -> int | None:
        """Open the last component, which was not a link to follow when it was examined."""
        if self._flags & os.O_PATH:
            if self._flags & os.O_DIRECTORY and kind != stat.S_IFDIR:
                raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
            return os.dup(fd)  # not inherited: Python's
        try:
            return os.open(name, self._flags | os.O_NOFOLLOW, dir_fd=here)
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR) or kind == stat.S_IFLNK:
                raise
            if error.errno == errno.ENOTDIR and kind != stat.S_IFDIR:
                raise
        # It is a link now, and was not one a moment ago.
        self._tries += 1
        if self._tries > _TRIES:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), name)
        pending.append(name)
        return None

    def _follow(self, link: int, pending: list[str]) -> None:
        """Put the components of a link's target in front of those that are left."""
        self._links += 1
        if self._links > MAX_LINKS or self._is_magic(link):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = os.readlink("", dir_fd=link)
        if target.startswith("/"):
            while len(self._stack) > 1:
                self._leave()
        pending.extend(_components(target))

    def _is_magic(self, link: int) -> bool:
        """Return whether a link is a process's link in /proc, which is not a path but an object.

        Other links of procfs (self, mounts, net) are below its root, and not below a process.
        """
        if not is_proc(link):
            return False
        below = [name for fd, name in self._stack if is_proc(fd) and not _is_proc_root(fd)]
        has_root = any(is_proc(fd) and _is_proc_root(fd) for fd, _ in self._stack)
        return not has_root or (bool(below) and below[0].isdigit())


def _is_proc_root(fd: int) -> bool:
    return os.fstat(fd).st_ino == _PROC_ROOT


def _components(path: str) -> list[str]:
    """Return the components of a path, last first; "." is kept at the end of the path.

    There it means that the component before it is a directory, as a slash at the end does.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.endswith(("/", "/.")) or path == ".":
        parts.append(".")
    return parts[::-1]
