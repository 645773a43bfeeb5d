# SPDX-License-Identifier: Apache-2.0
"""The steps by which a running container gets its GPUs; each can be described, done and undone.

A step is planned only if something is missing, so the same plan changes nothing the second time.
Undoing a step restores the earlier state.
"""

from __future__ import annotations

import os
import stat

from gpuhook.apply.live.live_injection import rule_record
from gpuhook.apply.live.live_root import LiveRoot
from gpuhook.apply.rootfs.root_directory import Identity
from gpuhook.errors import fault
from gpuhook.kernel.mknod import mknod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Protocol

    from gpuhook.apply.live.cgroup.device_cgroup import DeviceRules, Snapshot
    from gpuhook.apply.live.live_injection import InjectedItems
    from gpuhook.containers.warm.process_handle import Process
    from gpuhook.host.interrupt import Interruptible
    from gpuhook.kernel.bpf.device_filter import Rule

    class Operation(Protocol):
        """One step of a plan."""

        def describe(self) -> list[str]:
            """Return a line for each change."""
            ...

        def execute(self, live: Live) -> None:
            """Do it, completely or not at all; raises OSError or a GpuhookError."""
            ...

        def undo(self, live: Live) -> None:
            """Restore what execute() changed."""
            ...


class Live:
    """A container that exists: its init, its root file system, its device rules.

    `place` is the path of its root, as LiveRoot takes it. `made` collects what the operations add,
    `left` what could not be removed.
    """

    __slots__ = (
        "_cleanups", "_identity", "_place", "_root", "left", "made", "process", "require_users",
        "rules", "signals", "volumes",
    )  # fmt: skip

    def __init__(
        self, process: Process, place: str, rules: DeviceRules, made: InjectedItems
    ) -> None:
        self.process = process
        self._place = place
        self._root: LiveRoot | None = None
        self.rules = rules
        self.made = made
        self.left: list[str] = []
        self._cleanups: list[Callable[[], None]] = []
        self._identity: tuple[int, int] | None = None
        self.signals: Interruptible | None = None
        # Called before the root is opened or its owner read; raises if the process may have
        # chosen them.
        self.require_users: Callable[[], None] = lambda: None
        # Paths at which config.json binds files of the host; None without a config.json.
        self.volumes: Sequence[str] | None = ()

    def __enter__(self) -> Live:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        for clean in self._cleanups:
            clean()
        self.rules.close()
        if self._root is not None:
            self._root.close()

    @property
    def identity(self) -> tuple[int, int]:
        """Return the user and group of its root; raises as Process.mapped_root() does."""
        if self._identity is None:
            self.require_users()
            self._identity = self.process.mapped_root()
        return self._identity

    @property
    def root(self) -> LiveRoot:
        """Return its root file system, opened on first use; raises as LiveRoot does.

        Work on no file of the container does not depend on its root.
        """
        if self._root is None:
            _ = self.identity  # cached: undo() needs it also after the process has exited
            self.require_users()
            self._root = LiveRoot(self.process, self._place, self.volumes)
        return self._root

    def require_root(self) -> None:
        """Raise what opening its root file system raises."""
        _ = self.root

    def at_end(self, clean: Callable[[], None]) -> None:
        """Call `clean` when nothing can be undone any more."""
        self._cleanups.append(clean)

    def as_root(self) -> Identity:
        """Return the context in which new files belong to the container's root."""
        return Identity(*self.identity)


class NodeStep:
    """Makes a device node; it replaces a device of other numbers."""

    def __init__(self, path: str, kind: str, numbers: tuple[int, int], mode: int) -> None:
        self.path = path
        self.kind = kind
        self.numbers = numbers
        self.mode = mode
        self.owner = (0, 0)
        self._before: os.stat_result | None = None
        self._directories: list[str] = []

    def describe(self) -> list[str]:
        """Return the node and its numbers."""
        major, minor = self.numbers
        return [f"device node {self.path} ({self.kind} {major}:{minor}, mode {self.mode:04o})"]

    def execute(self, live: Live) -> None:
        """Make the node."""
        self._directories = live.root.missing(self.path)
        try:
            with live.as_root():
                parent, name = live.root.parent(self.path, create=True)
            self._make(live, parent, name)
        except BaseException:
            self._remove_directories(live)
            raise
        live.made.directories += self._directories

    def _make(self, live: Live, parent: int, name: str) -> None:
        self._before = live.root.status(self.path, follow=False)
        if self._before is not None:
            if stat.S_IFMT(self._before.st_mode) not in (stat.S_IFCHR, stat.S_IFBLK):
                raise fault("GH1750", path=self.path, what="something other than a device")
            os.unlink(name, dir_fd=parent)
        try:
            uid, gid = self.owner
            mknod(parent, name, self.kind, *self.numbers, self.mode, uid, gid)
        except OSError as error:
            error.filename = self.path
            self._restore(parent, name)
            raise

    def _restore(self, parent: int, name: str) -> None:
        if self._before is not None:
            make_again(parent, name, self._before)

    def undo(self, live: Live) -> None:
        """Remove the node, and restore the one before it."""
        parent, name = live.root.parent(self.path)
        os.unlink(name, dir_fd=parent)
        self._restore(parent, name)
        self._remove_directories(live)

    def _remove_directories(self, live: Live) -> None:
        for directory in reversed(self._directories):
            live.root.remove_empty(directory)


def make_again(parent: int, name: str, old: os.stat_result) -> None:
    """Make a device node as it was; raises OSError."""
    kind = "c" if stat.S_ISCHR(old.st_mode) else "b"
    numbers = os.major(old.st_rdev), os.minor(old.st_rdev)
    mknod(parent, name, kind, *numbers, stat.S_IMODE(old.st_mode), old.st_uid, old.st_gid)


class AccessStep:
    """Allows devices in the container's device cgroup.

    `nodes` are the container's nodes of the rules, `hosts` the host's, for systemd.
    """

    def __init__(self, rules: list[Rule], nodes: dict[Rule, str], hosts: dict[Rule, str]) -> None:
        self.rules = rules
        self.nodes = nodes
        self.hosts = hosts
        self._before: Snapshot | None = None

    def describe(self) -> list[str]:
        """Return a line for each rule."""
        return [f"device rule: allow {name}" for name in self.names()]

    def names(self) -> list[str]:
        """Return each node and its rule: "/dev/nvidia0 (c 195:0 rw)"."""
        return [f"{self.nodes[rule]} ({rule.line})" for rule in self.rules]

    def execute(self, live: Live) -> None:
        """Add the rules."""
        self._before = live.rules.snapshot()
        live.rules.change(self.rules, [], self.hosts)
        live.made.rules += [rule_record(rule) for rule in self.rules]

    def undo(self, live: Live) -> None:
        """Restore the rules."""
        if self._before is not None:
            live.rules.restore(self._before)
