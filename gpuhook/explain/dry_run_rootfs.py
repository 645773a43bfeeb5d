# SPDX-License-Identifier: Apache-2.0
"""A bundle's root file system in which nothing is made: what would be is noted.

Each link and file fails where it would fail, as whether the wrapper does a job itself or leaves it
to a hook depends on that.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.apply.live.live_files import FileChange
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.vendors.nvidia.hot.rootfs.rootfs_jobs import RootfsWork

_MAX_FILE = 16 << 20


class RehearsedRoot(Root):
    """A Root whose link() and write() answer as a Root's, and write nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        # By place: what would be there by now, and what is there.
        self._made: dict[str, FileChange] = {}
        self._before: dict[str, FileChange] = {}
        self._directories: set[str] = set()

    @property
    def changes(self) -> list[FileChange]:
        """The links and files that would be other ones in the end, in order."""
        return [
            made
            for place, made in self._made.items()
            if (made.target, made.data) != (self._before[place].target, self._before[place].data)
        ]

    def link(self, target: str, path: str) -> bool:
        """Note a link that is not there yet; raises OSError as making it would."""
        return self._make(FileChange(path, target=target))

    def write(self, path: str, data: bytes) -> bool:
        """Note a file that holds something else; raises OSError as writing it would."""
        return self._make(FileChange(path, data=data))

    def read(self, path: str, limit: int) -> bytes | None:
        """Return what the file holds, or would by now."""
        made = self._made.get(self._place(path))
        return super().read(path, limit) if made is None or made.data is None else made.data

    def _make(self, change: FileChange) -> bool:
        fd, name, place = self._found(change.path)
        now = self._made.get(place) or self._is(change, fd, name)
        if (now.target, now.data) == (change.target, change.data):
            return False
        self._require_replaceable(fd, name, place)
        self._before.setdefault(place, now)
        self._made[place] = change
        return True

    def _is(self, change: FileChange, fd: int | None, name: str) -> FileChange:
        """Return what is at the path of a change: a link, a file, or something else."""
        if fd is None:
            return FileChange(change.path)
        try:
            return FileChange(change.path, target=os.readlink(name, dir_fd=fd))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
        try:
            return FileChange(change.path, data=super().read(change.path, _MAX_FILE))
        except (OSError, GpuhookError):  # a directory, a device, or larger than anything of ours
            return FileChange(change.path, is_large=True)

    def _place(self, path: str) -> str:
        """Return where a file of this path is, links on the way to it resolved."""
        parent, _, name = path.rpartition("/")
        return self.real(parent or "/").rstrip("/") + "/" + name

    def _found(self, path: str) -> tuple[int | None, str, str]:
        """Return (the directory of `path` or None where it would be made, name, place).

        Raises OSError where the directory cannot be made.
        """
        parent, _, name = path.rpartition("/")
        place = self._place(path)
        try:
            fd = self.directory(parent or "/")
        except FileNotFoundError:
            self._require_makeable(place.rpartition("/")[0])
            return None, name, place
        _require_writable(fd, name)
        return fd, name, place

    def _require_makeable(self, directory: str) -> None:
        """Raise OSError if a directory, links resolved, cannot be made; note it otherwise."""
        made = []
        while directory not in ("", *self._directories):
            try:
                _require_writable(self.directory(directory), directory)
                break
            except FileNotFoundError:
                made.append(directory)
                directory = directory.rpartition("/")[0]
        else:
            _require_writable(self.directory("/"), directory)
        self._directories.update(made)

    def _require_replaceable(self, fd: int | None, name: str, place: str) -> None:
        """Raise IsADirectoryError where a directory stands, which rename(2) replaces by nothing."""
        is_directory = place in self._directories
        if fd is not None and not is_directory:
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                is_directory = stat.S_ISDIR(found.st_mode)
            except FileNotFoundError:
                is_directory = False
        if is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


class RootfsDryRun(RootfsWork):
    """Work in root file systems of which nothing comes; `changes` are what would be made."""

    def __init__(self, *, shown_as: str = "") -> None:
        """With `shown_as`, the root's path in hooks is this one, and not where it was looked at."""
        self._shown_as = shown_as
        self._roots: list[RehearsedRoot] = []

    @property
    def changes(self) -> list[FileChange]:
        """The links and files that would be made, in order."""
        return [change for root in self._roots for change in root.changes]

    def opened(self, path: str) -> Root:
        """Return the root file system at the host path `path`; GH1304 if it is the host's own."""
        root = RehearsedRoot(path)
        root.path = self._shown_as or path
        self._roots.append(root)
        return root

    def masked_file(self, content: bytes) -> str:  # noqa: ARG002 # it is not written
        """Return the path that the masked parameters would have; OSError where nobody can write."""
        directory = state.directory()
        place = directory
        while not os.path.isdir(place) and place != "/":
            place = os.path.dirname(place)
        if os.geteuid() == 0 and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
        return os.path.join(directory, "params")


def _require_writable(fd: int, name: str) -> None:
    """Raise EACCES where who makes the container may not make anything in a directory.

    Who looks at it as another user than root cannot tell: the wrapper may be root.
    """
    if os.getuid() != 0:
        return
    may = os.access(f"/proc/self/fd/{fd}", os.W_OK | os.X_OK, effective_ids=True)
    if not may:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
