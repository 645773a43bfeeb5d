# SPDX-License-Identifier: Apache-2.0
"""Files that users write with `-o`, also in directories that other users may write to.

An existing file or link is replaced, wherever the link leads. A device, or a link to one such as
/dev/stdout, never is. Directories are reached only through links that root or this user owns.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager, suppress

from gpuhook.host.hot import files
from gpuhook.host.hot.files import MAX_LINKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write(path: str, content: bytes, mode: int) -> None:
    """Put a new file at `path`, completely or not at all; raises OSError with that path."""
    with _place(path) as (place, name):
        _write(place, name, content, mode)


def require_place(path: str) -> None:
    """Raise the OSError that `write` would raise, as far as it is known before there is content."""
    with _place(path) as (place, name):
        if not name:
            raise OSError(errno.EINVAL, f"{path!r} names no file")
        if not os.access(f"/proc/self/fd/{place}", os.W_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def _place(path: str) -> Iterator[tuple[int, str]]:
    """Yield the opened directory of `path` and the name in it, where nothing but a file may be."""
    directory, name = os.path.split(path)
    try:
        place = _opened(directory)
        try:
            with suppress(FileNotFoundError):
                _require_file(place, name, path)
            yield place, name
        finally:
            os.close(place)
    except OSError as error:
        error.filename, error.filename2 = path, None  # not the temporary name
        raise


def _require_file(place: int, name: str, path: str) -> None:
    """Raise OSError for a device or a pipe, or a link to one or into /proc: /dev/stdout."""
    found = os.stat(name, dir_fd=place, follow_symlinks=False)
    if stat.S_ISLNK(found.st_mode) and os.readlink(name, dir_fd=place).startswith("/proc/"):
        raise OSError(errno.EEXIST, "it points to an open file and is not replaced", path)
    files.require_file(os.stat(name, dir_fd=place).st_mode, path)


def _write(place: int, name: str, content: bytes, mode: int) -> None:
    temporary = files.temporary_name(name)
    with suppress(PermissionError):  # a directory may be writable and not readable
        files.remove_stale(f"/proc/self/fd/{place}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o600, dir_fd=place)
    try:
        try:
            files.write_whole(fd, content)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=place, dst_dir_fd=place)
    except BaseException:
        os.unlink(temporary, dir_fd=place)
        raise


def _opened(directory: str) -> int:
    """Return a descriptor of a directory, reached step by step; EXDEV for another user's link."""
    left = [part for part in directory.split("/") if part not in ("", ".")][::-1]
    place = os.open("/" if directory.startswith("/") else ".", _DIRECTORY)
    links = 0
    try:
        while left:
            part = left.pop()
            found = os.stat(part, dir_fd=place, follow_symlinks=False)
            if stat.S_ISLNK(found.st_mode):
                links += 1
                _require_trusted(part, found, links)
                target = os.readlink(part, dir_fd=place)
                left += [one for one in target.split("/") if one not in ("", ".")][::-1]
                part = "/" if target.startswith("/") else "."
            inner = os.open(part, _DIRECTORY, dir_fd=place)
            os.close(place)
            place = inner
    except BaseException:
        os.close(place)
        raise
    return place


def _require_trusted(name: str, found: os.stat_result, links: int) -> None:
    if links > MAX_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if found.st_uid not in (0, os.geteuid()):
        raise OSError(errno.EXDEV, f"{name} is a link that another user owns")
