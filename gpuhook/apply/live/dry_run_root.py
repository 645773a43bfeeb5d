# SPDX-License-Identifier: Apache-2.0
"""What providing a root file system would change, found out without changing it."""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.apply.live.file_change import FileChange
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.live_root import LiveRoot

_MAX_FILE = 16 << 20


class DryRunRoot:
    """Stands where a root file system is provided, and notes what would be written."""

    def __init__(self, root: LiveRoot) -> None:
        self._root = root
        self.changes: list[FileChange] = []

    def link(self, target: str, path: str) -> bool:
        """Note a link that is not there yet; raises OSError where it cannot be made."""
        self._root.require_kept(path)
        if previous(self._root, path).target == target:
            return False
        self._root.writer(path)
        self.changes.append(FileChange(path, target=target))
        return True

    def write(self, path: str, data: bytes) -> bool:
        """Note a file that holds something else; raises OSError where it cannot be made."""
        if previous(self._root, path).data == data:
            return False
        self._root.writer(path)
        self.changes.append(FileChange(path, data=data))
        return True

    def is_link(self, path: str) -> bool:
        """Return whether `path` itself is a symbolic link."""
        return self._root.is_link(path)

    def open_file(self, path: str) -> int | None:
        """Return a readable descriptor (the caller's) of a regular file, None if there is none."""
        return self._root.open_file(path)

    def real(self, path: str) -> str:
        """Return `path` with every link resolved inside the root."""
        return self._root.real(path)

    def read(self, path: str, limit: int) -> bytes | None:
        """Return what the file holds, None if there is none."""
        return self._root.read(path, limit)

    def names(self, path: str) -> list[str]:
        """Return the names in a directory."""
        return self._root.names(path)


def previous(root: LiveRoot, path: str) -> FileChange:
    """Return what is at `path` itself now; raises IsADirectoryError, and GH1310 for a device."""
    fd = root.lookup(path, follow=False)
    if fd is None:
        return FileChange(path)
    try:
        found = os.fstat(fd)
        if stat.S_ISLNK(found.st_mode):
            return FileChange(path, target=os.readlink("", dir_fd=fd))
    finally:
        os.close(fd)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, "the image has a directory there", path)
    if stat.S_ISREG(found.st_mode) and found.st_size > _MAX_FILE:
        return FileChange(path, is_large=True)
    return FileChange(path, data=root.read(path, _MAX_FILE))


def current(root: LiveRoot, path: str) -> FileChange:
    """Return what is at `path` now as far as it can be a link or file of ours; else nothing."""
    try:
        return previous(root, path)
    except (OSError, GpuhookError):
        return FileChange(path)


def put_back(root: LiveRoot, change: FileChange) -> None:
    """Make `path` again what it was; a large file was not kept, and stays what it is by now."""
    if change.is_large:
        return
    if change.target is not None:
        root.link(change.target, change.path)
    elif change.data is not None:
        root.write(change.path, change.data)
    else:
        root.remove(change.path)
