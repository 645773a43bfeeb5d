# SPDX-License-Identifier: Apache-2.0
"""The files of a host below a root directory: read, replaced, never outside it.

Links are resolved inside the root (openat2, RESOLVE_IN_ROOT). A write to a link changes its target.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gpuhook.host.hot import files
from gpuhook.host.hot.files import MAX_LINKS
from gpuhook.kernel.openat2 import openat2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY
_LIMIT = 16 << 20  # bytes: no configuration is larger
_NOTHING = (FileNotFoundError, NotADirectoryError)


@dataclass(frozen=True, slots=True)
class Kept:
    """The mode and the owner of a file."""

    mode: int
    uid: int
    gid: int


class Host:
    """The host at `root`. Paths are absolute below it, also in the OSError of the methods."""

    def __init__(self, root: str = "/") -> None:
        """Take an existing directory."""
        self.root = root

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""
        with self._found(path, os.O_RDONLY | os.O_NONBLOCK) as fd:
            if fd is None:
                return None
            files.require_file(os.fstat(fd).st_mode, path)
            return files.read_descriptor(fd, path, _LIMIT)

    def names(self, path: str) -> list[str]:
        """Return the sorted names in a directory, [] if it does not exist."""
        with self._found(path, _DIRECTORY) as fd:
            names = [] if fd is None else os.listdir(fd)
            return sorted(one for one in names if not files.is_temporary(one))

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of a path, links followed; None if it does not exist."""
        with self._found(path, os.O_PATH) as fd:
            return None if fd is None else os.fstat(fd)

    def kept(self, path: str) -> Kept | None:
        """Return the mode and owner of a path, None if it does not exist."""
        found = self.status(path)
        return found and Kept(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)

    def missing(self, path: str) -> tuple[str, ...]:
        """Return the missing directories above a path, the outermost first."""
        absent = []
        directory = posixpath.dirname(path)
        while directory != "/" and self.status(directory) is None:
            absent.append(directory)
            directory = posixpath.dirname(directory)
        return tuple(reversed(absent))

    def require_place(self, path: str) -> None:
        """Raise OSError if no user could create a file at a path.

        The reasons: a parent is a file, the path is a directory or a link without a target, or the
        file system is mounted read-only.
        """
        for directory in self.missing(path)[:1]:
            path = directory
        with self._named(path), self._leaf(path) as (place, name):
            if not name:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if os.fstatvfs(place).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def make_directory(self, path: str, mode: int = 0o755) -> None:
        """Create a directory below an existing one, if it does not exist."""
        with self._named(path), self._leaf(path) as (place, name):
            try:
                os.mkdir(name, mode, dir_fd=place)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                    raise
                return
            # mkdir(2) applies the umask to the mode. If others can write to the parent, the path
            # may be a link by now.
            made = os.open(name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            try:
                os.fchmod(made, mode)
            finally:
                os.close(made)
            os.fsync(place)

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is empty; return whether it no longer exists."""
        with self._named(path), suppress(*_NOTHING), self._leaf(path) as (place, name):
            try:
                os.rmdir(name, dir_fd=place)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    return False
                raise
        return True

    def put(self, path: str, content: bytes, kept: Kept | None = None, mode: int = 0o644) -> None:
        """Create or replace a file atomically, and sync it to disk.

        An existing file keeps its mode, owner and extended attributes; `kept` sets mode and owner.
        A new file without `kept` belongs to this user and has the mode `mode`.
        """
        with self._named(path), self._leaf(path) as (place, name):
            temporary = files.temporary_name(name)
            files.remove_stale(place)
            old = _opened_file(place, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                fd = os.open(temporary, flags, 0o600, dir_fd=place)
                try:
                    files.write_whole(fd, content)
                    _set_attributes(fd, old, kept, mode)
                    os.fsync(fd)
                    os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
                except BaseException:
                    os.unlink(temporary, dir_fd=place)
                    raise
                finally:
                    os.close(fd)
            finally:
                if old is not None:
                    os.close(old)
            os.fsync(place)

    def remove(self, path: str) -> None:
        """Remove a file if it exists, and the temporary file of a killed run."""
        with self._named(path), suppress(*_NOTHING), self._leaf(path) as (place, name):
            files.remove_stale(place)
            os.unlink(name, dir_fd=place)
            os.fsync(place)

    @contextmanager
    def directory(self, path: str) -> Iterator[int]:
        """Give a descriptor of a directory that is there."""
        with self._named(path), self._opened() as root:
            fd = openat2(root, path, _DIRECTORY)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _found(self, path: str, flags: int) -> Iterator[int | None]:
        """Yield a descriptor of a path, None if it does not exist."""
        with self._named(path), self._opened() as root:
            fd = None
            with suppress(*_NOTHING):
                fd = openat2(root, path, flags)
            try:
                yield fd
            finally:
                if fd is not None:
                    os.close(fd)

    @contextmanager
    def _leaf(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the directory and the name of a path after its links; the file may not exist."""
        with self._opened() as root:
            for _ in range(MAX_LINKS):
                directory, name = posixpath.split(path)
                place = openat2(root, directory or "/", _DIRECTORY)
                try:
                    target = _target(place, name)
                    if target is None:
                        yield place, name
                        return
                finally:
                    os.close(place)
                # Not normalised: the kernel resolves ".." after a link.
                path = posixpath.join(directory, target)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    @contextmanager
    def _opened(self) -> Iterator[int]:
        fd = os.open(self.root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _named(self, path: str) -> Iterator[None]:
        """Set the path as the file name of an OSError, instead of a temporary file."""
        try:
            yield
        except OSError as error:
            error.filename, error.filename2 = path, None
            raise


def _target(place: int, name: str) -> str | None:
    try:
        return os.readlink(name, dir_fd=place)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == errno.EINVAL:  # not a link
            return None
        raise


def _opened_file(place: int, name: str) -> int | None:
    """Return a descriptor of an existing file, None for no file. OSError if it is not regular."""
    try:
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return None
    files.require_file(found.st_mode, name)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=place)


def _set_attributes(fd: int, old: int | None, kept: Kept | None, mode: int) -> None:
    """Set mode, owner and attributes of a new file: those of the old one, or those given."""
    if old is not None:
        found = os.fstat(old)
        kept = kept or Kept(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
        _copy_attributes(old, fd)
    kept = kept or Kept(mode, os.geteuid(), os.getegid())
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (kept.uid, kept.gid):
        os.fchown(fd, kept.uid, kept.gid)
    os.fchmod(fd, kept.mode)


def _copy_attributes(old: int, new: int) -> None:
    """Copy extended attributes, such as SELinux labels and access lists, as far as permitted."""
    with suppress(OSError):
        for name in os.listxattr(old):
            with suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))
