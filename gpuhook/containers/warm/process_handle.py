# SPDX-License-Identifier: Apache-2.0
"""A process of a container, identified by a descriptor.

A descriptor of /proc/PID remains bound to the process for which it was opened: after the process
has exited, every lookup through it fails (ESRCH, ENOENT), also if the pid is in use again. All
facts are read through the descriptor. Source: proc(5), namespaces(7), user_namespaces(7).
"""

from __future__ import annotations

import errno
import os

from gpuhook.errors import fault
from gpuhook.host.hot import files, procfs, state
from gpuhook.kernel import mountinfo
from gpuhook.kernel.namespaces import is_initial_user_namespace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.kernel.mountinfo import Mount

_UNMAPPED = 0xFFFFFFFF  # user_namespaces(7): a map's value for an id that the reader lacks
_MAX_ENVIRONMENT = 8 << 20
_GONE = (errno.ESRCH, errno.ENOENT)
_LEFT = (*_GONE, errno.EINVAL)  # mountinfo without a mount namespace: fs/proc_namespace.c
_ALWAYS_THERE = ("ns/", "root", "fd", "mountinfo")


class Process:
    """A living process. Lookups raise GH1732 after it has exited, GH1733 without permission."""

    __slots__ = ("fd", "pid", "started")

    def __init__(self, pid: int, started: int | None = None) -> None:
        """Open process `pid`, which started at `started` unless that is None (clock ticks).

        Raises GH1730 if there is no such process, GH1732 if another process has the pid.
        """
        self.pid = pid
        try:
            self.fd = os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _GONE:
                raise fault("GH1730", pid=pid) from None
            raise
        try:
            self.started = self._checked(started)
        except BaseException:
            os.close(self.fd)
            raise

    def _checked(self, started: int | None) -> int:
        found = self._started()
        if found is None:
            raise fault("GH1730", pid=self.pid)
        if started not in (None, found):
            raise fault("GH1732", pid=self.pid)
        return found

    def __enter__(self) -> Process:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.fd)

    def open(self, name: str, flags: int) -> int:
        """Return a descriptor of /proc/PID/`name`: "root", "ns/mnt"; raises OSError."""
        try:
            return os.open(name, flags | os.O_CLOEXEC, dir_fd=self.fd)
        except OSError as error:
            raise self._fault(error, name) from error

    def read(self, name: str, limit: int = mountinfo.MAX_BYTES) -> bytes:
        """Return the content of /proc/PID/`name`; raises OSError, or GH1310 past `limit`."""
        fd = self.open(name, os.O_RDONLY)
        try:
            return files.read_descriptor(fd, f"/proc/{self.pid}/{name}", limit)
        except OSError as error:
            raise self._fault(error, name) from error
        finally:
            os.close(fd)

    def namespace(self, kind: str) -> tuple[int, int]:
        """Return the device and inode that identify a namespace of the process: "mnt", "user"."""
        name = f"ns/{kind}"
        try:
            found = os.stat(name, dir_fd=self.fd)
        except OSError as error:
            raise self._fault(error, name) from error
        return found.st_dev, found.st_ino

    def in_initial_user_namespace(self) -> bool:
        """Return whether root in the process's user namespace is the host's root."""
        return is_initial_user_namespace(self.namespace("user")[1])

    def mapped_root(self) -> tuple[int, int]:
        """Return the user and group here of the container's root; GH1734 if there are none.

        A process of our own user namespace has our ids: its map would show them as the parent
        namespace sees them.
        """
        ours = os.stat("/proc/self/ns/user")
        if self.namespace("user") == (ours.st_dev, ours.st_ino):
            return 0, 0
        return self._mapped("uid_map"), self._mapped("gid_map")

    def _mapped(self, name: str) -> int:
        for line in self.read(name).splitlines():
            inside, outside = (int(word) for word in line.split()[:2])
            if inside == 0 and outside != _UNMAPPED:
                return outside
        raise fault("GH1734", pid=self.pid, map=name)

    def environment(self) -> list[str]:
        """Return the variables that the process was started with, as NAME=value."""
        raw = self.read("environ", _MAX_ENVIRONMENT)
        return [os.fsdecode(entry) for entry in raw.split(b"\0") if entry]

    def require_alive(self) -> None:
        """Raise GH1732 if the process has exited."""
        if self._started() is None:
            raise fault("GH1732", pid=self.pid)

    def mounts(self) -> list[Mount]:
        """Return the mounts below its root directory, which it may have changed."""
        return mountinfo.parse(self.read("mountinfo"))

    def _started(self) -> int | None:
        """Return when the process started, None if it has exited; a zombie has."""
        try:
            fd = os.open("stat", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise self._fault(error, "stat") from error
        try:
            return procfs.start_ticks(os.read(fd, 65536))
        except ProcessLookupError:
            return None
        finally:
            os.close(fd)

    def _fault(self, error: OSError, name: str) -> Exception:
        """Return the meaning of a failed lookup: GH1732, GH1733, or the error with its file."""
        # A process that is ending has left its namespaces before it is a zombie.
        has_left = error.errno in _LEFT and name.startswith(_ALWAYS_THERE)
        if has_left or self._started() is None:
            return fault("GH1732", pid=self.pid)
        if error.errno in (errno.EACCES, errno.EPERM):
            return fault("GH1733", path=f"/proc/{self.pid}/{name}", reason=error.strerror)
        error.filename = f"/proc/{self.pid}/{name}"
        return error


def is_hosts_root() -> bool:
    """Return whether this is the host's root; the root of a user namespace is not.

    A hook may have no variable that shows that it is rootless.
    """
    inode = os.stat("/proc/self/ns/user").st_ino
    return not state.is_rootless() and is_initial_user_namespace(inode)
