# SPDX-License-Identifier: Apache-2.0
"""Bind mounts of the host's files in a running container.

On the host's side, the file is cloned as a mount that is attached nowhere; a child process then
enters the container's mount namespace and attaches it. So neither side needs to see the other's
paths, and nothing is mounted on the host.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.errors import fault
from gpuhook.kernel import mounts
from gpuhook.kernel.namespaces import in_mount_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.apply.live.hotplug_steps import Live

# Options of a mount -> attributes of mount_setattr(2).
ATTRIBUTES = {
    "ro": mounts.MOUNT_ATTR_RDONLY,
    "nosuid": mounts.MOUNT_ATTR_NOSUID,
    "nodev": mounts.MOUNT_ATTR_NODEV,
    "noexec": mounts.MOUNT_ATTR_NOEXEC,
}


class Bind:
    """One bind mount to make: of the host's `source` on the container's `target`.

    With `is_mapped`, its files have their owners in the container's user namespace.
    """

    __slots__ = (
        "attributes", "directories", "is_directory", "is_mapped", "place", "source", "target",
    )  # fmt: skip

    def __init__(self, source: str, target: str, attributes: int, *, is_directory: bool) -> None:
        self.source = source
        self.target = target
        self.attributes = attributes
        self.is_directory = is_directory
        self.is_mapped = False
        self.place = ""  # the empty target that was made for it
        self.directories: list[str] = []

    def describe(self) -> str:
        """Return the source, the target and the options."""
        words = [word for word, bit in ATTRIBUTES.items() if self.attributes & bit]
        words += ["idmap"] if self.is_mapped else []
        return f"mount {self.source} at {self.target} ({','.join(words) or 'rw'})"


class BindMounts:
    """Makes bind mounts, all in one visit to the container's mount namespace."""

    def __init__(self, binds: list[Bind]) -> None:
        self.binds = binds
        self._taken: list[str] = []  # paths of the mounts in the child that removes them
        self._trees: list[int] = []
        # The mounted files: the host may have another file of that name by then, or none.
        self._sources: list[os.stat_result] = []

    def describe(self) -> list[str]:
        """Return a line for each mount."""
        return [bind.describe() for bind in self.binds]

    def execute(self, live: Live) -> None:
        """Mount; the mounts before a failed one are removed again."""
        live.at_end(self._forget)
        targets: list[int] = []
        try:
            targets.extend(self._target(live, bind) for bind in self.binds)
            live.root.require_unshared(targets)
            if self._clone(live):
                self._attach(live, targets)
            else:
                self._bind(live)
        except BaseException:
            self._remove_targets(live)
            raise
        finally:
            for fd in targets:
                os.close(fd)
        for bind, found in zip(self.binds, self._sources):
            live.made.mounts.append([bind.target, found.st_dev, found.st_ino])
            live.made.directories += bind.directories
            if bind.place:
                live.made.files.append(bind.place)

    def _target(self, live: Live, bind: Bind) -> int:
        """Return a descriptor of the target of a mount, which is created if it does not exist."""
        fd = live.root.lookup(bind.target)
        if fd is None:
            bind.directories = live.root.missing(bind.target)
            with live.as_root():
                bind.place = live.root.make_target(bind.target, is_directory=bind.is_directory)
            fd = live.root.lookup(bind.target)
        if fd is None:
            raise OSError(errno.ENOENT, "it disappeared while it was being created", bind.target)
        what = _obstacle(fd, bind)
        if what:
            os.close(fd)
            raise fault("GH1750", path=bind.target, what=what)
        return fd

    def _clone(self, live: Live) -> bool:
        """Clone the host's files; returns whether this kernel can (Linux 5.2).

        Other kernels can mount only while the container's init still has the host's tree.
        """
        try:
            for bind in self.binds:
                self._trees.append(mounts.clone(bind.source, bind.attributes))
                if bind.is_mapped:
                    self._map_owners(live, bind)
        except OSError as error:
            has_mapped = any(bind.is_mapped for bind in self.binds)
            if error.errno != errno.ENOSYS or live.root.is_entered or has_mapped:
                raise
            self._sources = [os.stat(bind.source) for bind in self.binds]
            return False
        self._sources = [os.fstat(tree) for tree in self._trees]
        return True

    def _map_owners(self, live: Live, bind: Bind) -> None:
        namespace = live.process.open("ns/user", os.O_RDONLY)
        try:
            mounts.map_owners(self._trees[-1], namespace)
        except OSError as error:
            error.filename = bind.source
            raise
        finally:
            os.close(namespace)

    def _attach(self, live: Live, targets: list[int]) -> None:
        self._taken = [str(tree) for tree in self._trees]
        steps = list(zip(self.binds, self._trees, targets))

        def step(number: int) -> None:
            bind, tree, target = steps[number]
            mounts.attach(tree, target, bind.attributes, bind.target, ".")

        self._mount_all(live, step)

    def _bind(self, live: Live) -> None:
        """Bind by path, the target's name in its directory: no process is in the container yet."""
        for bind in self.binds:
            fd, name = live.root.parent(live.root.real(bind.target))
            self._taken.append(f"{fd}/{name}")

        def step(number: int) -> None:
            bind, path = self.binds[number], self._taken[number]
            mounts.bind(bind.source, path, bind.attributes, ".")

        self._mount_all(live, step)

    def _mount_all(self, live: Live, step: Callable[[int], None]) -> None:
        """Do the step for each mount in the container's namespace, for all of them or for none."""

        def work() -> None:
            for number in range(len(self.binds)):
                step(number)

        try:
            in_mount_namespace(live.root.namespace, work)
        except BaseException:  # the child may have been killed: its progress is not known
            in_mount_namespace(live.root.namespace, self._take_away)
            raise

    def _take_away(self) -> None:
        """Unmount mounted targets that show their source, the last one first."""
        for path, source in reversed(list(zip(self._taken, self._sources))):
            if os.path.samestat(os.stat(path), source):
                try:
                    mounts.umount2(path, mounts.MNT_DETACH)
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise

    def undo(self, live: Live) -> None:
        """Remove the mounts, and the targets that were created for them."""

        def work() -> None:
            for path in reversed(self._taken):
                mounts.umount2(path, mounts.MNT_DETACH)

        in_mount_namespace(live.root.namespace, work)
        self._remove_targets(live)

    def _remove_targets(self, live: Live) -> None:
        for bind in reversed(self.binds):
            for path in [bind.place, *reversed(bind.directories)]:
                if path:
                    live.root.remove_empty(path)

    def _forget(self) -> None:
        for fd in self._trees:
            os.close(fd)
        self._trees = []


def _obstacle(fd: int, bind: Bind) -> str:
    """Return what prevents a mount on the file behind `fd`, "" for nothing.

    Over files of /proc, a mount would redirect what is written to them, such as security labels.
    """
    if stat.S_ISDIR(os.fstat(fd).st_mode) != bind.is_directory:
        return "a file" if bind.is_directory else "a directory"
    if mounts.is_proc(fd) and not os.readlink(f"/proc/self/fd/{fd}").endswith(bind.target):
        return "a link to a file in /proc"
    return ""
