# SPDX-License-Identifier: Apache-2.0
"""A container's root file system, which an attacker may have made.

Every path is walked component by component from a descriptor of the root, with O_NOFOLLOW; links
are resolved here and never leave the root; files are used through their descriptors, so no path is
checked first and used later. Reads are bounded. Nothing is followed across a mount point: what is
behind one is not the container's own.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.apply.rootfs.safe_walk import ABSENT, ENTRY, Walk, mount_id
from gpuhook.errors import fault
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.safe_walk import Mounts


class Root:
    """An open root file system. Paths are absolute and of the container."""

    def __init__(self, path: str, fd: int | None = None) -> None:
        """Open the root file system at the host path `path`; GH1304 if it is the host's own.

        With `fd`, a descriptor of its directory (the Root closes it), `path` is only a name.
        """
        self.path = path
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        self._fd = os.open(path, flags) if fd is None else fd
        self._mounts: Mounts = {mount_id(self._fd): None}
        if _is_hosts(os.fstat(self._fd)):
            os.close(self._fd)
            raise fault("GH1304", path=path)
        self._known: dict[str, int] = {}
        self._swept: set[int] = set()

    def __enter__(self) -> Root:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every descriptor."""
        self.forget()
        os.close(self._fd)

    def forget(self) -> None:
        """Close the directories that were walked to: one of them may be gone."""
        for fd in {*self._known.values()}:
            os.close(fd)
        self._known = {}

    def directory(self, path: str, *, create: bool = False) -> int:
        """Return an O_PATH descriptor (owned by the Root) of the directory `path`.

        Missing directories are made, 0755, if `create`. Raises OSError: ENOENT, ENOTDIR, ELOOP, or
        CrossingError if a mount point is on the way.
        """
        known = self._known.get(path)
        if known is not None:
            return known
        try:
            fd = Walk(self._fd, self._mounts, create=create).to(path)
        except OSError as error:
            error.filename = path  # the walk knows one component
            raise
        self._known[path] = fd
        return fd

    def real(self, path: str) -> str:
        """Return `path` with every link resolved inside the root; missing components are kept.

        For comparing paths only: use descriptors to act.
        """
        return Walk(self._fd, None, create=False).real(path)

    def link(self, target: str, path: str) -> bool:
        """Make `path` a symbolic link to `target`; returns whether anything changed.

        Another link or file in its place is replaced atomically; a directory is left (EISDIR).
        """
        parent, _, name = path.rpartition("/")
        fd = self.directory(parent or "/", create=True)
        try:
            os.symlink(target, name, dir_fd=fd)
        except FileExistsError:
            return self._relink(target, name, fd)
        return True

    def _relink(self, target: str, name: str, fd: int) -> bool:
        """Replace what has the link's name, unless it is the same link."""
        try:
            if os.readlink(name, dir_fd=fd) == target:
                return False
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
        temporary = files.temporary_name(name)
        self._sweep(fd)
        os.symlink(target, temporary, dir_fd=fd)
        _rename(temporary, name, fd)
        return True

    def open_file(self, path: str) -> int | None:
        """Return a readable descriptor (the caller's) of the regular file `path`, None if absent.

        Links are followed inside the root; GH1310 for anything but a regular file.
        """
        try:
            fd = Walk(self._fd, self._mounts, create=False).to(path, last_is_file=True)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise fault("GH1310", path=path, limit="")
            return _readable(fd)
        finally:
            os.close(fd)

    def read(self, path: str, limit: int) -> bytes | None:
        """Return the content of the regular file `path`, None if there is none.

        GH1310 if it is larger than `limit` bytes, or not a regular file.
        """
        fd = self.open_file(path)
        if fd is None:
            return None
        try:
            return files.read_descriptor(fd, path, limit)
        finally:
            os.close(fd)

    def write(self, path: str, data: bytes) -> bool:
        """Put `data` in place of the file `path`, 0644; returns whether anything changed.

        A symbolic link in its place is replaced, not followed.
        """
        parent, _, name = path.rpartition("/")
        fd = self.directory(parent or "/", create=True)
        if self._holds(fd, name, data):
            return False
        temporary = files.temporary_name(name)
        self._sweep(fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        out = os.open(temporary, flags, 0o644, dir_fd=fd)
        try:
            files.write_whole(out, data)
            os.fchmod(out, 0o644)
        except BaseException as error:
            os.unlink(temporary, dir_fd=fd)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = self.path + path
            raise
        finally:
            os.close(out)
        _rename(temporary, name, fd)
        return True

    def is_link(self, path: str) -> bool:
        """Return whether `path` itself is a symbolic link; False if it does not exist."""
        parent, _, name = path.rpartition("/")
        try:
            os.readlink(name, dir_fd=self.directory(parent or "/"))
        except OSError:
            return False
        return True

    def names(self, path: str) -> list[str]:
        """Return the names in the directory `path`, [] if there is none; raises as _listed()."""
        try:
            fd = self.directory(path)
        except OSError as error:
            if error.errno in ABSENT:
                return []
            raise
        return _listed(fd, path)

    def lookup(self, path: str) -> int | None:
        """Return an O_PATH descriptor (the caller's) of what `path` leads to, None if of nothing.

        It enters foreign mounts, too: it is for reading what was mounted into the container.
        """
        try:
            return Walk(self._fd, None, create=False).to(path, last_is_file=True)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            raise

    def directory_names(self, path: str) -> list[str]:
        """Return the names in a directory in any mount, sorted; [] if there is none."""
        fd = self.lookup(path)
        if fd is None:
            return []
        try:
            return _listed(fd, path)
        except NotADirectoryError:
            return []
        finally:
            os.close(fd)

    def _holds(self, fd: int, name: str, data: bytes) -> bool:
        try:
            held = os.open(name, ENTRY, dir_fd=fd)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(held)
            if not stat.S_ISREG(found.st_mode) or found.st_size != len(data):
                return False
            readable = _readable(held)
            try:
                return files.read_descriptor(readable, name, len(data)) == data
            finally:
                os.close(readable)
        finally:
            os.close(held)

    def _sweep(self, fd: int) -> None:
        """Remove temporary files of killed writers from a directory, once."""
        if fd in self._swept:
            return
        self._swept.add(fd)
        files.remove_stale(f"/proc/self/fd/{fd}")


def _listed(fd: int, path: str) -> list[str]:
    """Return the names in a directory, sorted; EFBIG if it has more than files.MAX_NAMES."""
    found = list(files.names(f"/proc/self/fd/{fd}", files.MAX_NAMES + 1))
    if len(found) > files.MAX_NAMES:
        raise OSError(errno.EFBIG, f"the directory has more than {files.MAX_NAMES} entries", path)
    return sorted(found)


def _is_hosts(found: os.stat_result) -> bool:
    """Return whether a directory is our root directory, or that of the host's first process.

    In a pod with the host's pids, or below chroot(2), these are two.
    """
    for path in ("/", "/proc/1/root"):
        try:
            host = os.stat(path)
        except OSError:
            continue  # without rights over the host, nothing of it can be changed
        if (found.st_dev, found.st_ino) == (host.st_dev, host.st_ino):
            return True
    return False


def _readable(fd: int) -> int:
    """Return a readable descriptor of the file behind `fd`, whatever its path is by now.

    A lease of a process in the container must not block us: then this raises EWOULDBLOCK.
    """
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def _rename(temporary: str, name: str, fd: int) -> None:
    try:
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:
        os.unlink(temporary, dir_fd=fd)
        raise


class Identity:
    """Within it, files are opened and made as this user and group of the host.

    They are those of a container's root: what is made in a container must belong to it, and what is
    read is read with its rights. (0, 0) changes nothing. Root's other groups are dropped, too.
    """

    def __init__(self, uid: int, gid: int) -> None:
        self._ids = (uid, gid) if (uid or gid) and os.geteuid() == 0 else None
        self._groups: list[int] = []

    def __enter__(self) -> None:
        if self._ids:
            self._groups = os.getgroups()
            os.setgroups([])
            os.setegid(self._ids[1])
            os.seteuid(self._ids[0])

    def __exit__(self, *exc: object) -> None:
        if self._ids:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(self._groups)
