# SPDX-License-Identifier: Apache-2.0
"""The files of a host below a root directory, read and replaced, and never those outside it.

Links are followed inside the root (openat2, RESOLVE_IN_ROOT): a link of a file stays, and the file
that it names is the one that changes.
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
    """Whose a file is, and who may read it."""

    mode: int
    uid: int
    gid: int


class Host:
    """The host at `root`; paths begin with "/" there. Methods raise OSError with such a path."""

    def __init__(self, root: str = "/") -> None:
        """Take a directory, which has to be there."""
        self.root = root

    def outside(self, path: str) -> str:
        """Return the name that a path has for us."""
        return posixpath.normpath(self.root.rstrip("/") + path)

    def read(self, path: str) -> bytes | None:
        """Return the content of a file, None if it is not there."""
        with self._named(path), self._opened() as root:
            try:
                fd = openat2(root, path, os.O_RDONLY | os.O_NONBLOCK)
            except _NOTHING:
                return None
            try:
                files.require_file(os.fstat(fd).st_mode, path)
                return files.read_descriptor(fd, path, _LIMIT)
            finally:
                os.close(fd)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; [] if it is not there."""
        with self._named(path), self._opened() as root:
            try:
                fd = openat2(root, path, _DIRECTORY)
            except _NOTHING:
                return []
            try:
                return sorted(one for one in os.listdir(fd) if not files.is_temporary(one))
            finally:
                os.close(fd)

    def status(self, path: str) -> os.stat_result | None:
        """Return what is at a path, links followed; None for nothing."""
        with self._named(path), self._opened() as root:
            try:
                fd = openat2(root, path, os.O_PATH)
            except _NOTHING:
                return None
            try:
                return os.fstat(fd)
            finally:
                os.close(fd)

    def kept(self, path: str) -> Kept | None:
        """Return the mode and owner of what is at a path; None for nothing."""
        found = self.status(path)
        return found and Kept(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)

    def missing(self, path: str) -> tuple[str, ...]:
        """Return the directories above a path that are not there, the outermost first."""
        found = []
        directory = posixpath.dirname(path)
        while directory != "/" and self.status(directory) is None:
            found.append(directory)
            directory = posixpath.dirname(directory)
        return tuple(reversed(found))

    def require_place(self, path: str) -> None:
        """Raise OSError where no file can be at a path, whoever asks and once directories are made.

        That is below a file, at a directory, at a link to where nothing is, or on a file system
        that is mounted read-only.
        """
        for directory in self.missing(path)[:1]:
            path = directory
        with self._named(path), self._leaf(path) as (place, name):
            if not name:
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if os.fstatvfs(place).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def make_directory(self, path: str, mode: int = 0o755) -> None:
        """Make a directory in one that is there, unless it is there itself."""
        with self._named(path), self._leaf(path) as (place, name):
            try:
                os.mkdir(name, mode, dir_fd=place)
            except FileExistsError:
                if not stat.S_ISDIR(os.stat(name, dir_fd=place, follow_symlinks=False).st_mode):
                    raise
                return
            # mkdir(2) takes the umask away from the mode. By then it may be a link, if others may
            # write to what is above it.
            made = os.open(name, _DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place)
            try:
                os.fchmod(made, mode)
            finally:
                os.close(made)
            os.fsync(place)

    def remove_directory(self, path: str) -> bool:
        """Remove a directory if it is there and empty; return whether it is gone."""
        with self._named(path), suppress(*_NOTHING), self._leaf(path) as (place, name):
            try:
                os.rmdir(name, dir_fd=place)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    return False
                raise
        return True

    def put(self, path: str, content: bytes, kept: Kept | None = None, mode: int = 0o644) -> None:
        """Put a file in the place of one or of none, atomically and for good.

        One that is there keeps its mode, owner and extended attributes; `kept` says mode and owner
        instead. A new one without is ours, of `mode`.
        """
        with self._named(path), self._leaf(path) as (place, name):
            # An engine that reads *.toml does not take up what a killed run leaves behind.
            temporary = files.temporary_name(name)[:240] + "~"
            files.remove_stale(place)
            old = _opened_file(place, name)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                fd = os.open(temporary, flags, 0o600, dir_fd=place)
                try:
                    files.write_whole(fd, content)
                    _dress(fd, old, kept, mode)
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
        """Remove a file, if it is there, and what a killed run has left beside it."""
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
    def _leaf(self, path: str) -> Iterator[tuple[int, str]]:
        """Give the directory of the file that a path means, and its name there, which is no link.

        Nothing need be there.
        """
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
                # Not normalised: what ".." means behind a link is for the kernel to say.
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
        """Name the path in errors, and not a descriptor or a temporary file."""
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
        if error.errno == errno.EINVAL:  # no link
            return None
        raise


def _opened_file(place: int, name: str) -> int | None:
    """Return a descriptor of the file that is there, None for nothing; OSError for no file."""
    try:
        found = os.stat(name, dir_fd=place, follow_symlinks=False)
    except FileNotFoundError:
        return None
    files.require_file(found.st_mode, name)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=place)


def _dress(fd: int, old: int | None, kept: Kept | None, mode: int) -> None:
    """Give a new file the mode, owner and attributes that it is to have."""
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
    """Copy what can be copied: labels of SELinux, access lists, those of users."""
    with suppress(OSError):
        for name in os.listxattr(old):
            with suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))
