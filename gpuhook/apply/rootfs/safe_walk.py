# SPDX-License-Identifier: Apache-2.0
"""A walk through a file system that an attacker may have made, and may be changing.

Component by component from a descriptor of the root, with O_NOFOLLOW; links are resolved here and
never leave the root. `..` is the directory that the walk came from, not what the file system says
meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.host.hot.files import MAX_LINKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    # Ids of mounts, each with the device of its file system (st_dev); None for any device.
    Mounts = dict[int, "int | None"]

DIRECTORY = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
ENTRY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_MAX_DEPTH = 128


class CrossingError(OSError):
    """A path leads through a mount point inside the root."""


class Walk:
    """One walk from the root: a stack of open directories; its top is the current one."""

    def __init__(self, root: int, mounts: Mounts | None, *, create: bool) -> None:
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
        """Enter `name`, or put the components of its link in front of `pending`."""
        here = self._stack[-1]
        try:
            fd = os.open(name, ENTRY if is_file else DIRECTORY, dir_fd=here)
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
            return os.open(name, DIRECTORY, dir_fd=here)  # another create was faster
        return os.open(name, DIRECTORY, dir_fd=here)

    def _follow(self, name: str, pending: list[str]) -> None:
        self._links += 1
        if self._links > MAX_LINKS:
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
        """Raise CrossingError if the current directory is behind a foreign mount point.

        Checked only before an action: passing through is harmless (a link leads back out). A device
        number would not do: a bind of a host directory of the same file system has the same one.
        """
        if self._mounts is not None and not is_in(self._stack[-1], self._mounts):
            raise CrossingError(errno.EXDEV, "a mount is over it", name)


def is_in(fd: int, mounts: Mounts) -> bool:
    """Return whether `fd` was opened through one of `mounts`.

    The kernel gives the id of a mount that is gone to the next one, such as that of a volume: there
    the device differs. Only a mount that cannot go, as a descriptor of it is open, has None.
    """
    number = mount_id(fd)
    if number not in mounts:
        return False
    device = mounts[number]
    return device is None or device == os.fstat(fd).st_dev


def mount_id(fd: int) -> int:
    """Return the id of the mount through which `fd` was opened (proc(5), /proc/pid/fdinfo)."""
    info = os.open(f"/proc/self/fdinfo/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for line in os.read(info, 4096).split(b"\n"):
            if line.startswith(b"mnt_id:"):
                return int(line[7:])
    finally:
        os.close(info)
    raise OSError(errno.ENOSYS, "this kernel does not show mount ids", f"/proc/self/fdinfo/{fd}")


def _components(path: str) -> list[str]:
    """Return the components of a path, last first."""
    return [part for part in reversed(path.split("/")) if part not in ("", ".")]
