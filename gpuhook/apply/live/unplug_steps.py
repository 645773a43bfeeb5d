# SPDX-License-Identifier: Apache-2.0
"""The steps by which items are removed from a running container.

A failure that the container causes in its own files is left and reported; the device is denied all
the same. A failure on the host's side is undone.
"""

from __future__ import annotations

import errno
import os

from gpuhook.apply.live.bind_mounts import Bind, BindMounts
from gpuhook.apply.live.hotplug_steps import AccessStep, make_again
from gpuhook.apply.live.live_files import current, put_back
from gpuhook.errors import GpuhookError
from gpuhook.kernel import mounts
from gpuhook.kernel.bpf.device_filter import Rule
from gpuhook.kernel.namespaces import in_mount_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.live.hotplug_steps import Live
    from gpuhook.apply.live.live_files import FileChange


class RemoveNode:
    """Removes a device node if it still exists."""

    def __init__(self, path: str, found: os.stat_result) -> None:
        self.path = path
        self._found = found
        self._is_gone = False

    def describe(self) -> list[str]:
        """Return the node."""
        number = self._found.st_rdev
        return [f"remove device node {self.path} ({os.major(number)}:{os.minor(number)})"]

    def execute(self, live: Live) -> None:
        """Remove it."""
        try:
            with live.as_root():
                live.root.remove(self.path)
            self._is_gone = True
        except OSError as error:
            _leave(live, error, self.path)

    def undo(self, live: Live) -> None:
        """Make it again as it was."""
        if self._is_gone:
            make_again(*live.root.parent(self.path), self._found)


class Unmount:
    """Removes bind mounts; a process that has a file of one open keeps that file.

    `shown` is what each target shows, as (device, inode). A target that shows something else by
    then is kept, as a container may have led the path to a mount that protects the host from it.
    """

    def __init__(self, binds: list[Bind], shown: dict[str, tuple[int, int]]) -> None:
        self.binds = binds
        self.shown = shown

    def describe(self) -> list[str]:
        """Return a line for each mount."""
        return [f"unmount {bind.target}" for bind in self.binds]

    def execute(self, live: Live) -> None:
        """Unmount them, the last one first; all are mounted again if one fails."""
        held: list[tuple[int, Bind]] = []

        def work() -> None:
            for fd, bind in held:
                try:
                    mounts.umount2(str(fd), mounts.MNT_DETACH)
                except OSError as error:
                    error.filename = bind.target
                    raise

        try:
            for bind in reversed(self.binds):
                try:
                    held.append((self._ours(live, bind), bind))
                except OSError as error:
                    _leave(live, error, bind.target)
            in_mount_namespace(live.root.namespace, work)
        except BaseException:
            self.undo(live)
            raise
        finally:
            for fd, _ in held:
                os.close(fd)

    def _ours(self, live: Live, bind: Bind) -> int:
        """Return a descriptor of gpuhook's mount; ESTALE if its target shows another file."""
        fd = live.root.lookup(bind.target)
        if fd is not None:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) == self.shown[bind.target]:
                return fd
            os.close(fd)
        raise OSError(errno.ESTALE, "a different file is now mounted there", bind.target)

    def undo(self, live: Live) -> None:
        """Mount the missing ones again."""
        gone = [bind for bind in self.binds if not live.root.is_mounted(bind.target)]
        if gone:
            BindMounts(gone).execute(live)


class PutBack:
    """Restores links and files; `written` are the paths of all that were made."""

    def __init__(self, changes: list[FileChange], written: list[str]) -> None:
        self.changes = changes
        self._written = written
        self._before: list[FileChange] = []

    def describe(self) -> list[str]:
        """Return a line for each link and file."""
        return [
            change.describe() if change.is_something else f"remove {change.path}"
            for change in self.changes
        ]

    def execute(self, live: Live) -> None:
        """Restore them as far as possible."""
        with live.as_root():
            self._before = [current(live.root, change.path) for change in self.changes]
        self._write(live, self.changes)
        for path in self._written:
            _sweep(live, path)

    def undo(self, live: Live) -> None:
        """Restore the content before execute()."""
        self._write(live, self._before)

    @staticmethod
    def _write(live: Live, changes: list[FileChange]) -> None:
        with live.as_root():
            for change in changes:
                try:
                    put_back(live.root, change)
                except (OSError, GpuhookError) as error:
                    _leave(live, error, change.path)


class RemoveEmpty:
    """Removes targets of mounts and directories that were made, if they are empty."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def describe(self) -> list[str]:
        """Return nothing: no one misses an empty file."""
        return []

    def execute(self, live: Live) -> None:
        """Remove what is empty."""
        with live.as_root():
            for path in self.paths:
                live.root.remove_empty(path)

    def undo(self, live: Live) -> None:
        """Do nothing: a later mount recreates it."""


class Forbid(AccessStep):
    """Removes device rules: drops added ones, and denies those that still allow access."""

    def __init__(
        self, added: list[Rule], others: list[Rule], nodes: dict[Rule, str], hosts: dict[Rule, str]
    ) -> None:
        super().__init__([*added, *others], nodes, hosts)
        self.added = added

    def describe(self) -> list[str]:
        """Return a line for each rule."""
        return [f"device rule: no longer allow {name}" for name in self.names()]

    def execute(self, live: Live) -> None:
        """Change the rules, all of them or none."""
        self._before = live.rules.snapshot()
        try:
            self._change(live)
        except BaseException:
            live.rules.restore(self._before)
            raise

    def _change(self, live: Live) -> None:
        live.rules.drop(self.added, self.hosts)
        left = [rule for rule in self.rules if live.rules.verdict(*rule.device, rule.access)[0]]
        denials = [Rule(False, *rule.device, rule.access) for rule in left]
        hosts = {
            denial: self.hosts[rule]
            for rule, denial in zip(left, denials)
            if rule not in self.added
        }
        live.rules.change([], denials, hosts)


def _leave(live: Live, error: OSError | GpuhookError, path: str = "") -> None:
    """Record a failure: a container must not keep its device by changing its own files."""
    if isinstance(error, GpuhookError):
        live.left.append(f"{path}: {error.message}")
    else:
        live.left.append(f"{error.filename or path}: {error.strerror}")


def _sweep(live: Live, path: str) -> None:
    try:
        live.root.sweep(path)
    except (OSError, GpuhookError):
        return  # a temporary file does no harm
