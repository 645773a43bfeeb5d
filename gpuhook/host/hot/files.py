# SPDX-License-Identifier: Apache-2.0
"""Files of the host: read whole and bounded, replaced atomically.

Nothing here truncates a file in place: a reader sees the old bytes or the new ones, also if the
writer is killed or the disk is full.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.errors import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINKS = 40  # that the kernel follows: path_resolution(7)
MAX_NAMES = 1 << 19  # in a directory of a container; more are taken for an attack
_TEMPORARY = ".gpuhook-"


def is_path(text: str) -> bool:
    """Return whether a path is valid: no system call raises ValueError for it."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def read(path: str, limit: int = 64 << 20) -> bytes:
    """Return the content of the regular file `path`; raises OSError, or GH1310 past `limit`."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return read_descriptor(fd, path, limit)
    except OSError as error:
        error.filename = path  # read(2) and fstat(2) know no path
        raise
    finally:
        os.close(fd)


def read_descriptor(fd: int, name: str, limit: int) -> bytes:
    """Return the content of the regular file behind `fd`; GH1310 if it is larger or not regular."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > limit:
        raise fault("GH1310", path=name, limit=_limit(limit))
    chunks: list[bytes] = []
    left = limit + 1
    while left > 0:
        chunk = os.read(fd, min(left, max(found.st_size + 1, 65536)))
        if not chunk:
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)
        chunks.append(chunk)
        left -= len(chunk)
    raise fault("GH1310", path=name, limit=_limit(limit))


def _limit(number: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= size and number % size == 0:
            return f" of at most {number // size} {unit}"
    return f" of at most {number} bytes"


def version(found: os.stat_result) -> str:
    """Return what changes when a file is written or replaced: `<size>-<mtime_ns>-<inode>`."""
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"


def require_file(mode: int, path: str) -> None:
    """Raise OSError if this `st_mode` is not a regular file's: a rename would replace a device."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EEXIST, "it is not a regular file and is not replaced", path)


def replace(path: str, data: bytes, *, mode: int | None = None, durable: bool = False) -> None:
    """Replace the file `path` by `data` atomically; the new file keeps the mode and the owner.

    With a `mode`, the new file has that mode and this process's owner. Without an old file and a
    mode it has 0644. A symbolic link is followed: the link remains, and its target is replaced.
    `durable` waits for the disk. Raises OSError; the old file is then unchanged, and no temporary
    file remains. Something other than a regular file, such as /dev/full, is never replaced.
    """
    old: os.stat_result | None = None
    try:
        old = os.lstat(path)
        if stat.S_ISLNK(old.st_mode):
            path = os.path.realpath(path)
            old = os.stat(path)
    except FileNotFoundError:
        old = None
    if old is not None:
        require_file(old.st_mode, path)
    directory, name = os.path.split(path)
    temporary = os.path.join(directory or ".", temporary_name(name))
    remove_stale(directory or ".")
    fd = _create(temporary)
    try:
        try:
            write_whole(fd, data)
            if old is not None and mode is None:
                _keep_owner(fd, old)
                mode = stat.S_IMODE(old.st_mode)
            os.fchmod(fd, 0o644 if mode is None else mode)
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = path
        raise


def _create(temporary: str) -> int:
    """Return a descriptor of the new file `temporary`, which only its owner can open."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(temporary, flags, 0o600)
    except FileExistsError:
        # Left by a killed process that had our pid: no other process can be writing it now.
        os.unlink(temporary)
        return os.open(temporary, flags, 0o600)


def write_whole(fd: int, data: bytes) -> None:
    """Write all of `data` to `fd`."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _keep_owner(fd: int, old: os.stat_result) -> None:
    new = os.fstat(fd)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(fd, old.st_uid, old.st_gid)


def remove_stale(directory: str | int) -> None:
    """Remove temporary files of dead processes from a directory.

    Those with this process's pid, too: the caller has none there at that moment. In a directory of
    a container, which may have any number of files, only the first ones are considered.
    """
    own = _pid()
    for name in [name for name in names(directory, MAX_NAMES) if is_temporary(name)]:
        pid = name[len(_TEMPORARY) :].partition("-")[0]
        if pid == own or (pid.isdigit() and not os.path.exists("/proc/" + pid)):
            try:
                if isinstance(directory, str):
                    os.unlink(os.path.join(directory, name))
                else:
                    os.unlink(name, dir_fd=directory)
            except OSError:
                continue


def names(directory: str | int, most: int) -> Iterator[str]:
    """Yield the first `most` names of a directory.

    A process may add names while the kernel reads the directory: that need not end.
    """
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number == most:
                return
            yield entry.name


def is_temporary(name: str) -> bool:
    """Return whether a file name is temporary_name() of some file."""
    return name.startswith(_TEMPORARY)


def temporary_name(name: str) -> str:
    """Return the name of the temporary file that is renamed to `name`.

    It has another suffix: programs that read each *.json, *.yaml, *.toml or *.conf of a directory,
    also hidden ones (the CDI libraries), never read the file of a killed run.
    """
    return f"{_TEMPORARY}{_pid()}-{name}"[:249] + "~"


def _pid() -> str:
    """Return our pid as /proc shows it.

    A hook may run in a container's pid namespace, where getpid() returns a number that other
    processes have, too. Names of temporary files are shared with processes on the host, and
    compared with the host's /proc.
    """
    try:
        return os.readlink("/proc/self")
    except OSError:
        return str(os.getpid())
