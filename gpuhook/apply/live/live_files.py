# SPDX-License-Identifier: Apache-2.0
"""Links and the loader's files in a running container: planned, made, and restored.

The ledger's note of a file is JSON: [] for nothing, ["link", target], ["file", X]: X is the
checksum of a new file and the base 64 content of an old one; ["large"] for a file that was not
kept. Entries of the ledger must remain small, whatever an image contains.
"""

from __future__ import annotations

import errno
import os
import stat
from binascii import a2b_base64, b2a_base64, crc32

from gpuhook.apply.live.live_injection import InjectedItems
from gpuhook.apply.rootfs.rootfs_files import provide
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.live.live_root import LiveRoot
    from gpuhook.apply.rootfs.provision import Provision


class LiveFiles:
    """Makes links and the loader's files; `failures` are those that are known to fail."""

    def __init__(
        self, provision: Provision, changes: list[FileChange], failures: list[OSError]
    ) -> None:
        self.provision = provision
        self.changes = changes
        self._known = [failure.filename for failure in failures]
        self._before: list[FileChange] = []
        self._directories: list[str] = []

    def describe(self) -> list[str]:
        """Return a line for each link and file that changes."""
        return [change.describe() for change in self.changes]

    def execute(self, live: Live) -> None:
        """Make them; all are restored if one fails unexpectedly."""
        missing = [path for change in self.changes for path in live.root.missing(change.path)]
        self._directories = list(dict.fromkeys(missing))
        self._before = self._now(live)
        try:
            self._provide(live)
        except BaseException:
            self.undo(live)
            raise
        made = InjectedItems()
        made.changes += self._noted(self._before)
        made.directories += self._directories
        live.made.add(made)

    def _provide(self, live: Live) -> None:
        with live.as_root():
            failures = provide(live.root, self.provision)
        for failure in failures:
            if failure.filename not in self._known:
                raise failure

    def promised(self, live: Live) -> list[list[Any]]:
        """Return the links and files that execute() makes, as InjectedItems records them."""
        return self._noted(self._now(live))

    def _now(self, live: Live) -> list[FileChange]:
        with live.as_root():
            return [previous(live.root, change.path) for change in self.changes]

    def _noted(self, befores: list[FileChange]) -> list[list[Any]]:
        return [change.noted(before) for change, before in zip(self.changes, befores)]

    def undo(self, live: Live) -> None:
        """Restore the earlier content."""
        with live.as_root():
            for before in reversed(self._before):
                put_back(live.root, before)
        for directory in reversed(self._directories):
            live.root.remove_empty(directory)


MOST_KEPT = 65536  # bytes of an overwritten file: the loader's cache and its configuration
MOST_UNDER_LINK = 4096  # of a file that a link replaces: there may be many


class FileChange:
    """A path and its current or future content: a link to `target`, a file with `data`.

    If both are None, nothing exists, or a file that `is_large`, which is not read.
    """

    __slots__ = ("data", "is_large", "path", "target")

    def __init__(
        self,
        path: str,
        target: str | None = None,
        data: bytes | None = None,
        *,
        is_large: bool = False,
    ) -> None:
        self.path = path
        self.target = target
        self.data = data
        self.is_large = is_large

    @property
    def is_something(self) -> bool:
        """Return whether anything exists."""
        return self.target is not None or self.data is not None or self.is_large

    def describe(self) -> str:
        """Return it in words."""
        if self.target is not None:
            return f"link {self.path} -> {self.target}"
        return f"file {self.path} ({len(self.data or b'')} bytes)"

    def summary(self) -> list[Any]:
        """Return the note that identifies it."""
        if self.target is not None:
            return ["link", self.target]
        if self.data is not None:
            return ["file", crc32(self.data)]
        return ["large"] if self.is_large else []

    def _whole(self) -> list[Any]:
        """Return the note from which it can be restored."""
        if self.data is None:
            return self.summary()
        if len(self.data) > MOST_KEPT:
            return ["large"]
        return ["file", b2a_base64(self.data, newline=False).decode()]

    def noted(self, before: FileChange) -> list[Any]:
        """Return [path, new content, old content] for the ledger."""
        return [self.path, self.summary(), before._whole()]


def old_content(path: str, note: list[Any]) -> FileChange | None:
    """Return the old content of a note; None if it was not kept."""
    kind = note[0] if note else ""
    if kind == "link":
        return FileChange(path, target=str(note[1]))
    if kind == "file":
        return FileChange(path, data=a2b_base64(note[1]))
    return None if note else FileChange(path)


_MAX_FILE = 16 << 20


class DryRunRoot:
    """Takes the place of a root file system, and records what would be written."""

    def __init__(self, root: LiveRoot) -> None:
        self._root = root
        self.changes: list[FileChange] = []

    def link(self, target: str, path: str) -> bool:
        """Record a link that does not exist yet; raises OSError if it cannot be made."""
        self._root.require_kept(path)
        if previous(self._root, path).target == target:
            return False
        self._root.writer(path)
        self.changes.append(FileChange(path, target=target))
        return True

    def write(self, path: str, data: bytes) -> bool:
        """Record a file of another content; raises OSError if it cannot be made."""
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
        """Return the content of a file, None without one."""
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
    """Return what is at `path` now if it can be gpuhook's link or file; else nothing."""
    try:
        return previous(root, path)
    except (OSError, GpuhookError):
        return FileChange(path)


def put_back(root: LiveRoot, change: FileChange) -> None:
    """Restore the content of `path`; a large file was not kept, and is left as it is."""
    if change.is_large:
        return
    if change.target is not None:
        root.link(change.target, change.path)
    elif change.data is not None:
        root.write(change.path, change.data)
    else:
        root.remove(change.path)
