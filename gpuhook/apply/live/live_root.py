# SPDX-License-Identifier: Apache-2.0
"""The root file system of an existing container, used from the host's side.

A descriptor of the root directory of the container's mount namespace leads into it, so files are
read and made without entering the namespace. Its processes may change every path meanwhile: lookups
remain inside the root (kernel/openat2.py), and nothing is made behind a foreign mount.
"""

from __future__ import annotations

import errno
import os
import stat

from gpuhook.apply.live.container_view import open_root
from gpuhook.apply.live.live_files import MOST_UNDER_LINK
from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.safe_walk import ABSENT, CrossingError, is_in, mount_id
from gpuhook.containers.warm import host_mounts
from gpuhook.errors import fault
from gpuhook.host.hot import files
from gpuhook.kernel import mountinfo, mounts
from gpuhook.kernel.namespaces import opened_in_mount_namespace
from gpuhook.kernel.openat2 import openat2

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.containers.warm.process_handle import Process
    from gpuhook.kernel.mountinfo import Mount


class LiveRoot(Root):
    """The root of a process's container; `place` is its path in the process's view.

    Before a runtime has pivoted (prestart), the process still has the host's tree, and the root is
    the bundle's root file system in it; afterwards it is "/": the root directory of the mount
    namespace. Raises GH1747 if the process has another one, GH1733 without permission to enter.
    """

    def __init__(
        self, process: Process, place: str = "/", volumes: Iterable[str] | None = ()
    ) -> None:
        """Open it. At the paths `volumes`, it has files of the host; None: they are not known."""
        self._pid = process.pid
        with _Host():
            # Kept open: undo needs them also after the process has exited.
            self.namespace, self._mountinfo, root = open_root(process, place)
            try:
                super().__init__(f"/proc/{process.pid}/root{place.rstrip('/')}", root)
                found = self.mounts()
                above = place.rstrip("/")
                binds = None
                if volumes is not None:
                    binds = host_mounts.places(volumes, found, above, self.real)
                own = host_mounts.own_mounts(self._pid, found, binds)
                self._mounts = {**own, **self._mounts}
            except BaseException:
                self._close_namespace()
                raise
        self.is_entered = place == "/"
        self._clone: Root | None = None

    def close(self) -> None:
        """Close every descriptor, and with its own that of a writable clone."""
        super().close()
        self._close_namespace()
        if self._clone is not None:
            self._clone.close()
            self._clone = None

    def _close_namespace(self) -> None:
        os.close(self.namespace)
        os.close(self._mountinfo)

    def mounts(self) -> list[Mount]:
        """Return the mounts of the namespace, independently of the root of any process."""
        os.lseek(self._mountinfo, 0, 0)
        text = files.read_descriptor(self._mountinfo, "mountinfo", mountinfo.MAX_BYTES)
        return mountinfo.parse(text)

    def lookup(self, path: str, *, follow: bool = True) -> int | None:
        """Return a descriptor (the caller's) of whatever `path` leads to, None if of nothing.

        It enters foreign mounts, too: it is for reading and for mounting over.
        """
        flags = os.O_PATH | (0 if follow else os.O_NOFOLLOW)
        try:
            return openat2(self._fd, path.lstrip("/") or ".", flags)
        except OSError as error:
            if error.errno in ABSENT:
                return None
            error.filename = path
            raise

    def status(self, path: str, *, follow: bool = True) -> os.stat_result | None:
        """Return what `path` leads to, None if that is nothing."""
        fd = self.lookup(path, follow=follow)
        if fd is None:
            return None
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def is_mounted(self, path: str) -> bool:
        """Return whether something is mounted on what `path` leads to."""
        fd, parent = self.lookup(path), self.lookup(path.rstrip("/").rpartition("/")[0] or "/")
        try:
            if fd is None or parent is None:
                return False
            return mount_id(fd) != mount_id(parent)
        finally:
            for held in (fd, parent):
                if held is not None:
                    os.close(held)

    def missing(self, path: str) -> list[str]:
        """Return the missing directories on the way to `path`, outermost first.

        Links are resolved, so these are the paths that would be created.
        """
        parts = self.real(path.rpartition("/")[0] or "/").split("/")[1:]
        whole = ["/" + "/".join(parts[:n]) for n in range(1, len(parts) + 1)]
        return [directory for directory in whole if directory != "/" and not self.status(directory)]

    def writer(self, path: str) -> Root:
        """Return where a file at `path` can be made: here, or a writable clone of the root.

        A container with root.readonly has its root mounted read-only; the clone is mounted nowhere,
        so neither the container nor the host sees it. Raises CrossingError behind a foreign mount,
        GH1305 if the file system itself is read-only.
        """
        # Of the parent: the name itself, perhaps a link, is not followed.
        place = self.real(path.rpartition("/")[0] or "/")
        while (fd := self.lookup(place)) is None:
            place = place.rpartition("/")[0] or "/"
        try:
            number, is_own = mount_id(fd), is_in(fd, self._mounts)
            read_only = bool(os.fstatvfs(fd).f_flag & os.ST_RDONLY)
        finally:
            os.close(fd)
        if not is_own:
            raise CrossingError(errno.EXDEV, "a mount is over it", path)
        if not read_only:
            return self
        if number != mount_id(self._fd):
            raise OSError(errno.EROFS, "the container mounts that read-only", path)
        return self._writable_clone()

    def _writable_clone(self) -> Root:
        if self._clone is None:
            fd = self._copied()
            if os.fstatvfs(fd).f_flag & os.ST_RDONLY:
                os.close(fd)
                raise fault("GH1305", path=self.path)
            self._clone = Root(self.path, fd)
        return self._clone

    def _copied(self) -> int:
        """Return a writable copy of the root's mount, which a process of its namespace makes."""
        try:
            with _Host():
                return opened_in_mount_namespace(
                    self.namespace, lambda: mounts.writable_clone(self._fd)
                )
        except OSError as error:
            error.filename = f"{self.path}, which is read-only"
            raise

    def loader_cache(self, program: str, first: list[bytes], last: list[bytes]) -> bytes:
        """Return the loader cache that the host's ldconfig makes of this root; see ldconfig.py."""
        from gpuhook.apply.live import ldconfig

        with _Host():
            return ldconfig.cache_of(self.namespace, self._fd, program, first, last)

    def make_target(self, path: str, *, is_directory: bool) -> str:
        """Make an empty file or directory to mount on; returns its path, links resolved."""
        place = self.real(path)
        if is_directory:
            self.writer(place).directory(place, create=True)
            return place
        fd, name = self.parent(place, create=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            os.close(os.open(name, flags, 0o644, dir_fd=fd))
        except OSError as error:
            error.filename = path
            raise
        return place

    def require_unshared(self, fds: list[int]) -> None:
        """Raise GH1754 if a mount on one of `fds` would appear outside the container too.

        So it would on a mount that shares the mounts below it (rshared volumes and roots).
        """
        propagating = host_mounts.propagating_mounts(self._pid, self.mounts())
        for fd in fds:
            if mount_id(fd) in propagating:
                path = os.readlink(f"/proc/self/fd/{fd}")
                raise fault("GH1754", path=path)

    def remove_empty(self, path: str) -> bool:
        """Remove the empty file or directory `path`; returns whether it was one, and is gone."""
        try:
            fd, name = self.parent(path)
            found = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                os.rmdir(name, dir_fd=fd)
                for root in (self, self._clone):
                    if root is not None:
                        root.forget()
            elif stat.S_ISREG(found.st_mode) and found.st_size == 0:
                os.unlink(name, dir_fd=fd)
            else:
                return False
        except OSError:
            return False  # in use by now, or gone
        return True

    def require_kept(self, path: str) -> None:
        """Raise EEXIST if a link would replace a file that is too large to be kept.

        It could not be restored. A container that is being created gets the link all the same.
        """
        found = self.status(path, follow=False) if self.is_entered else None
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_size > MOST_UNDER_LINK:
            raise OSError(errno.EEXIST, "the image has its own file there", path)

    def link(self, target: str, path: str) -> bool:
        """Make a link as Root does, if the place is writable and nothing large is replaced."""
        self.require_kept(path)
        root = self.writer(path)
        with _Named(path):
            return super().link(target, path) if root is self else root.link(target, path)

    def write(self, path: str, data: bytes) -> bool:
        """Put a file in place as Root does, if the place is writable."""
        root = self.writer(path)
        with _Named(path):
            return super().write(path, data) if root is self else root.write(path, data)

    def sweep(self, path: str) -> None:
        """Remove temporary files of killed writers of `path`; raises OSError."""
        self._sweep(self.parent(path)[0])

    def remove(self, path: str) -> None:
        """Remove the file, link or node `path`; a missing one is ignored."""
        with _Named(path):
            try:
                fd, name = self.parent(path)
                os.unlink(name, dir_fd=fd)
            except FileNotFoundError:
                return

    def parent(self, path: str, *, create: bool = False) -> tuple[int, str]:
        """Return a descriptor (the Root's) of the directory in which `path` can be made, its name.

        Missing directories are made if `create`.
        """
        parent, _, name = path.rpartition("/")
        return self.writer(path).directory(parent or "/", create=create), name


class _Host:
    """Within it, this process has its own rights again, also inside an Identity."""

    def __init__(self) -> None:
        self._ids = os.geteuid(), os.getegid()
        self._is_taken = self._ids[0] != 0 and os.getresuid()[2] == 0

    def __enter__(self) -> None:
        if self._is_taken:
            os.seteuid(0)
            os.setegid(0)

    def __exit__(self, *exc: object) -> None:
        if self._is_taken:
            os.setegid(self._ids[1])
            os.seteuid(self._ids[0])


class _Named:
    """Within it, an OSError names the path in the container, not one component of it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, OSError):
            error.filename, error.filename2 = self._path, None
