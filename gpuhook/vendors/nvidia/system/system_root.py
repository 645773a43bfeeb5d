# SPDX-License-Identifier: Apache-2.0
"""A root directory in which device nodes and links are made, never outside of it.

Links on the way are followed inside it (openat2, RESOLVE_IN_ROOT), so "/" in a link of the tree
means that tree.
"""

from __future__ import annotations

import os
import posixpath
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from gpuhook.errors import fault
from gpuhook.host.hot import files
from gpuhook.kernel.mknod import mknod
from gpuhook.kernel.openat2 import openat2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuhook.vendors.nvidia.system.expected_nodes import ExpectedNode

KEEP, MAKE, REPLACE, REFUSE, SKIP, LOAD = "keep", "make", "replace", "refuse", "skip", "load"
CHANGES = (MAKE, REPLACE, LOAD)
_DIRECTORY = os.O_PATH | os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class Step:
    """One action of KEEP to LOAD on a path or a kernel module, with its reason or result."""

    action: str
    what: str
    says: str
    change: Callable[[], None] | None = None


def carry_out(steps: list[Step]) -> None:
    """Make the changes of the steps; raises OSError, and GH1535 before any if one is refused."""
    for step in steps:
        if step.action == REFUSE:
            raise fault("GH1535", path=step.what, reason=step.says)
    for step in steps:
        if step.change is not None:
            step.change()


class SystemRoot:
    """The root `path`; paths inside begin with "/" at it. Methods raise OSError."""

    def __init__(self, path: str) -> None:
        """Take an existing directory."""
        self.path = path

    def host(self, inside: str) -> str:
        """Return the host path of a path inside."""
        return posixpath.normpath(self.path.rstrip("/") + "/" + inside.lstrip("/"))

    def status(self, inside: str, *, is_followed: bool) -> os.stat_result | None:
        """Return the status of a path, its last link followed inside or not; None if missing."""
        flags = os.O_PATH if is_followed else os.O_PATH | os.O_NOFOLLOW
        with self._opened() as root:
            try:
                fd = openat2(root, inside, flags)
            except (FileNotFoundError, NotADirectoryError):
                return None
            try:
                return os.fstat(fd)
            finally:
                os.close(fd)

    def target(self, inside: str) -> str | None:
        """Return the target of the symbolic link at a path, None if it is not one."""
        directory, name = posixpath.split(inside)
        with suppress(OSError), self._directory(directory, is_made=False) as fd:
            return os.readlink(name, dir_fd=fd)
        return None

    def names(self, inside: str) -> list[str]:
        """Return the sorted names in a directory, [] if it does not exist."""
        with self._opened() as root:
            try:
                fd = openat2(root, inside, os.O_RDONLY | os.O_DIRECTORY)
            except (FileNotFoundError, NotADirectoryError):
                return []
            try:
                return sorted(os.listdir(fd))
            finally:
                os.close(fd)

    def make_node(self, expected: ExpectedNode, major: int) -> None:
        """Make a device node, atomically in place of an old file, but not of a directory."""
        owner = (expected.mode, expected.uid, expected.gid)
        self._put(
            expected.path, lambda fd, name: mknod(fd, name, "c", major, expected.minor, *owner)
        )

    def make_link(self, inside: str, target: str) -> None:
        """Make a symbolic link, atomically in place of an old file, but not of a directory."""
        self._put(inside, lambda fd, name: os.symlink(target, name, dir_fd=fd))

    def _put(self, inside: str, make: Callable[[int, str], None]) -> None:
        directory, name = posixpath.split(inside)
        temporary = files.temporary_name(name)
        with self._directory(directory, is_made=True) as fd:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=fd)  # left by a killed process that had our pid
            make(fd, temporary)
            try:
                os.rename(temporary, name, src_dir_fd=fd, dst_dir_fd=fd)
            except OSError:
                os.unlink(temporary, dir_fd=fd)
                raise

    @contextmanager
    def _directory(self, inside: str, *, is_made: bool) -> Iterator[int]:
        """Yield a descriptor of a directory; make it and its parents if necessary."""
        with self._opened() as root:
            done = "/"
            for part in filter(None, inside.split("/") if is_made else ()):
                fd = openat2(root, done, _DIRECTORY)
                try:
                    with suppress(FileExistsError):
                        os.mkdir(part, 0o755, dir_fd=fd)
                finally:
                    os.close(fd)
                done = posixpath.join(done, part)
            fd = openat2(root, inside or "/", _DIRECTORY)
            try:
                yield fd
            finally:
                os.close(fd)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        fd = os.open(self.path, _DIRECTORY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)


def described(status: os.stat_result) -> str:
    """Return a status in words."""
    if stat.S_ISCHR(status.st_mode):
        return (
            f"the character device {os.major(status.st_rdev)}:{os.minor(status.st_rdev)} with mode "
            f"{stat.S_IMODE(status.st_mode):04o}"
        )
    kinds = {
        stat.S_IFDIR: "a directory",
        stat.S_IFREG: "a file",
        stat.S_IFLNK: "a link",
        stat.S_IFBLK: "a block device",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(status.st_mode), "not a device")
