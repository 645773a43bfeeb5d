# SPDX-License-Identifier: Apache-2.0
"""A dry run in a root file system: records the links and files, and writes nothing.

Each change fails as the real one would: the wrapper leaves a job that fails to a hook.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.apply.live.live_files import FileChange
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import state
from gpuhook.vendors.hot.rootfs_jobs import RootfsWork

EMPTY = "/proc/self"  # a directory of every host, in place of a root that does not exist
_MAX_FILE = 16 << 20


class RehearsedRoot(Root):
    """A Root whose link() and write() return the same values and write nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        # By place: the state after the changes so far, and the present state.
        self._made: dict[str, FileChange] = {}
        self._before: dict[str, FileChange] = {}
        self._directories: set[str] = set()

    @property
    def changes(self) -> list[FileChange]:
        """The links and files that would differ in the end, in order."""
        return [
            made
            for place, made in self._made.items()
            if (made.target, made.data) != (self._before[place].target, self._before[place].data)
        ]

    def link(self, target: str, path: str) -> bool:
        """Record a new link; raises OSError as creating it would."""
        return self._make(FileChange(path, target=target))

    def write(self, path: str, data: bytes) -> bool:
        """Record a changed file; raises OSError as writing it would."""
        return self._make(FileChange(path, data=data))

    def read(self, path: str, limit: int) -> bytes | None:
        """Return the contents of the file after the changes so far."""
        made = self._made.get(self._place(path))
        return super().read(path, limit) if made is None or made.data is None else made.data

    def _make(self, change: FileChange) -> bool:
        fd, name, place = self._parent(change.path)
        now = self._made.get(place) or self._present(change, fd, name)
        if (now.target, now.data) == (change.target, change.data):
            return False
        self._require_replaceable(fd, name, place)
        self._before.setdefault(place, now)
        self._made[place] = change
        return True

    def _present(self, change: FileChange, fd: int | None, name: str) -> FileChange:
        """Return the present link or file at the path of a change."""
        if fd is None:
            return FileChange(change.path)
        try:
            return FileChange(change.path, target=os.readlink(name, dir_fd=fd))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINVAL):
                raise
        try:
            return FileChange(change.path, data=super().read(change.path, _MAX_FILE))
        except (
            OSError,
            GpuhookError,
        ):  # a directory, a device or a large file
            return FileChange(change.path, is_large=True)

    def _place(self, path: str) -> str:
        """Return the path with the links in its directories resolved."""
        parent, _, name = path.rpartition("/")
        return self.real(parent or "/").rstrip("/") + "/" + name

    def _parent(self, path: str) -> tuple[int | None, str, str]:
        """Return (the directory of `path`, None if it would be created; name; place).

        Raises OSError if the directory cannot be created.
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
        """Raise OSError if a directory, with links resolved, cannot be created; else record it."""
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
        """Raise IsADirectoryError for a directory, which rename(2) cannot replace by a file."""
        is_directory = place in self._directories
        if fd is not None and not is_directory:
            try:
                found = os.stat(name, dir_fd=fd, follow_symlinks=False)
                is_directory = stat.S_ISDIR(found.st_mode)
            except FileNotFoundError:
                is_directory = False
        if is_directory:
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)


class EmptyRoot(RehearsedRoot):
    """An empty root file system that exists nowhere: of a container whose image is unknown."""

    def __init__(self) -> None:
        super().__init__(EMPTY)

    def directory(self, path: str, *, create: bool = False) -> int:  # noqa: ARG002 # never made
        """Return a descriptor of the root directory only; raises FileNotFoundError for others."""
        if path != "/":
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._fd

    def real(self, path: str) -> str:
        """Return `path` without `.` and `..`."""
        return os.path.normpath(f"/{path.lstrip('/')}")

    def open_file(self, path: str) -> None:
        """Return None."""

    def lookup(self, path: str) -> None:
        """Return None."""

    def is_link(self, path: str) -> bool:  # noqa: ARG002 # it has no links
        """Return False."""
        return False

    def _parent(self, path: str) -> tuple[int | None, str, str]:
        parent, _, name = self._place(path).rpartition("/")
        while parent:
            self._directories.add(parent)
            parent = parent.rpartition("/")[0]
        return None, name, self._place(path)


class RootfsDryRun(RootfsWork):
    """Work in root file systems as a dry run; `changes` are its links and files."""

    is_recorded = False

    def __init__(self, *, empty: str = "") -> None:
        """With `empty`, the root is an empty one, and hooks get this path for it."""
        self._empty = empty
        self._roots: list[RehearsedRoot] = []

    @property
    def changes(self) -> list[FileChange]:
        """The links and files that would be written, in order."""
        return [change for root in self._roots for change in root.changes]

    def opened(self, path: str) -> Root:
        """Return the root file system at the host path `path`; GH1304 for the host's root."""
        root = EmptyRoot() if self._empty else RehearsedRoot(path)
        root.path = self._empty or path
        self._roots.append(root)
        return root

    def masked_file(self, content: bytes) -> str:  # noqa: ARG002 # not written
        """Return the path of the masked parameters; OSError if its directory is not writable."""
        directory = state.directory()
        place = directory
        while not os.path.isdir(place) and place != "/":
            place = os.path.dirname(place)
        if os.geteuid() == 0 and not os.access(place, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), directory)
        return os.path.join(directory, "params")


def _require_writable(fd: int, name: str) -> None:
    """Raise EACCES if root may not write to a directory; other users cannot check that."""
    if os.getuid() != 0:
        return
    may = os.access(f"/proc/self/fd/{fd}", os.W_OK | os.X_OK, effective_ids=True)
    if not may:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
