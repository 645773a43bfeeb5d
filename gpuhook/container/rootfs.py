# SPDX-License-Identifier: Apache-2.0
"""A container's root file system, which an attacker may have made.

HOT. Every path is walked component by component from a descriptor of the root, with O_NOFOLLOW;
links are resolved by us and never leave the root; what was found is used through its descriptor,
so there is no path that is checked first and used later. Sizes of what is read are bounded.
Nothing is followed across a mount point: what lies behind one belongs to somebody else.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook import files
from gpuhook.errors import fault

_DIRECTORY = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
_ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40
_MAX_DEPTH = 128


class CrossingError(OSError):
    """A path leads through a mount point inside the root."""


class Root:
    """An open root file system. Paths are absolute and of the container."""

    def __init__(self, path: str) -> None:
        """Open the root file system at the host path `path`; GH1304 if it is the host's own."""
        self.path = path
        self._fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        found, host = os.fstat(self._fd), os.stat("/")
        self._mounts = {_mount_id(self._fd)}
        if (found.st_dev, found.st_ino) == (host.st_dev, host.st_ino):
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
        for fd in {self._fd, *self._known.values()}:
            os.close(fd)
        self._known = {}

    def directory(self, path: str, *, create: bool = False) -> int:
        """Return an O_PATH descriptor (owned by the Root) of the directory `path`.

        Missing directories are made, 0755, if `create`. Raises OSError: ENOENT, ENOTDIR, ELOOP,
        or CrossingError where a mount point is on the way.
        """
        known = self._known.get(path)
        if known is not None:
            return known
        fd = _Walk(self._fd, self._mounts, create=create).to(path)
        self._known[path] = fd
        return fd

    def admit(self, path: str) -> None:
        """Let walks go into what is mounted at the directory `path`; nothing if there is none.

        For file systems that are the container's own: its tmpfs mounts, its /proc.
        """
        try:
            fd = _Walk(self._fd, None, create=False).to(path)
        except OSError:
            return
        self._mounts.add(_mount_id(fd))
        os.close(fd)

    def real(self, path: str) -> str:
        """Return `path` with every link resolved inside the root; what is missing stays as named.

        For comparing paths only: use descriptors to act.
        """
        return _Walk(self._fd, None, create=False).real(path)

    def link(self, target: str, path: str) -> bool:
        """Make `path` a symbolic link to `target`; returns whether anything had to change.

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
        """Put the link in place of what has its name, unless that is the same link."""
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

        Links are followed inside the root; GH1310 for what is no regular file.
        """
        try:
            fd = _Walk(self._fd, self._mounts, create=False).to(path, last_is_file=True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise fault("GH1310", path=path, limit="any number of")
            # Through /proc/self/fd: the very file that was checked, whatever the path is by now.
            return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
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
        """Put `data` in place of the file `path`, 0644; returns whether anything had to change.

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

    def names(self, path: str) -> list[str]:
        """Return the names in the directory `path`, [] if there is none."""
        try:
            fd = self.directory(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return []
            raise
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return sorted(os.listdir(readable))
        finally:
            os.close(readable)

    def _holds(self, fd: int, name: str, data: bytes) -> bool:
        try:
            held = os.open(name, _ENTRY, dir_fd=fd)
        except FileNotFoundError:
            return False
        try:
            found = os.fstat(held)
            if not stat.S_ISREG(found.st_mode) or found.st_size != len(data):
                return False
            readable = os.open(f"/proc/self/fd/{held}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                return files.read_descriptor(readable, name, len(data)) == data
            finally:
                os.close(readable)
        finally:
            os.close(held)

    def _sweep(self, fd: int) -> None:
        """Remove what killed writers left in a directory, once."""
        if fd in self._swept:
            return
        self._swept.add(fd)
        readable = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            files.remove_stale(readable)
        finally:
            os.close(readable)


def _rename(temporary: str, name: str, fd: int) -> None:
    try:
        os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
    except OSError:
        os.unlink(temporary, dir_fd=fd)
        raise


class _Walk:
    """One walk from the root: a stack of open directories, its top where we are."""

    def __init__(self, root: int, mounts: set[int] | None, *, create: bool) -> None:
        self._mounts = mounts
        self._create = create
        self._stack = [os.dup(root)]
        self._links = 0

    def to(self, path: str, *, last_is_file: bool = False) -> int:
        """Return a descriptor of `path` that the caller owns; the others are closed."""
        pending = _components(path)
        try:
            while pending:
                name = pending.pop()
                if name == "..":
                    if len(self._stack) > 1:
                        os.close(self._stack.pop())
                else:
                    self._enter(name, pending, is_file=last_is_file and not pending)
            if not last_is_file:
                self._require_own(path)
            return self._stack.pop()
        finally:
            for fd in self._stack:
                os.close(fd)

    def real(self, path: str) -> str:
        """Return the path that `path` leads to, as far as it exists."""
        pending = _components(path)
        trail: list[str] = []
        try:
            while pending:
                name = pending.pop()
                depth = len(self._stack)
                if name == "..":
                    if depth > 1:
                        os.close(self._stack.pop())
                        trail.pop()
                    continue
                try:
                    entered = self._enter(name, pending, is_file=not pending)
                except OSError:
                    return "/" + "/".join([*trail, name, *reversed(pending)])
                if entered:
                    trail.append(name)
                else:
                    del trail[len(self._stack) - 1 :]
            return "/" + "/".join(trail)
        finally:
            for fd in self._stack:
                os.close(fd)

    def _enter(self, name: str, pending: list[str], *, is_file: bool) -> bool:
        """Go into `name`, or put the components of the link that it is in front of `pending`."""
        here = self._stack[-1]
        try:
            fd = os.open(name, _ENTRY if is_file else _DIRECTORY, dir_fd=here)
        except FileNotFoundError:
            if not self._create:
                raise
            fd = self._make(name, here)
        except NotADirectoryError:
            self._follow(name, pending)
            return False
        if is_file and stat.S_ISLNK(os.fstat(fd).st_mode):
            os.close(fd)
            self._follow(name, pending)
            return False
        self._stack.append(fd)
        if len(self._stack) > _MAX_DEPTH:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        return True

    def _make(self, name: str, here: int) -> int:
        self._require_own(name)
        try:
            os.mkdir(name, 0o755, dir_fd=here)
        except FileExistsError:
            return os.open(name, _DIRECTORY, dir_fd=here)  # another create was faster
        return os.open(name, _DIRECTORY, dir_fd=here)

    def _follow(self, name: str, pending: list[str]) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        try:
            target = os.readlink(name, dir_fd=self._stack[-1])
        except OSError as error:
            if error.errno == errno.EINVAL:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name) from None
            raise
        if target.startswith("/"):
            for fd in self._stack[1:]:
                os.close(fd)
            del self._stack[1:]
        pending.extend(_components(target))

    def _require_own(self, name: str) -> None:
        """Raise CrossingError if where we are is behind a mount point of somebody else.

        Looked at where something is about to be done: a walk that only passes through (a link
        leads back out) does no harm. A device number would not do: a bind of a host directory of
        the same file system has the same one.
        """
        if self._mounts is not None and _mount_id(self._stack[-1]) not in self._mounts:
            raise CrossingError(errno.EXDEV, "a mount lies over it", name)


def _mount_id(fd: int) -> int:
    """Return the id of the mount that `fd` was opened through (proc(5), /proc/pid/fdinfo)."""
    info = os.open(f"/proc/self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for line in os.read(info, 4096).split(b"\n"):
            if line.startswith(b"mnt_id:"):
                return int(line[7:])
    finally:
        os.close(info)
    raise OSError(errno.ENOSYS, "this kernel does not tell mount ids", f"/proc/self/fdinfo/{fd}")


def _components(path: str) -> list[str]:
    """Return the components of a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
