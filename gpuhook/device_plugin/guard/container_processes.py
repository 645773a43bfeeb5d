# SPDX-License-Identifier: Apache-2.0
"""The processes of the host: which container they are in, what it was granted, and their end.

A pid can be another process's by the time it is used, so a process is told by its start time, too,
and gets signals through a descriptor of its own. Source: proc(5), pidfd_open(2), and for the inode
of the first pid namespace the kernel's include/linux/proc_ns.h, PROC_PID_INIT_INO.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass

from gpuhook.device_plugin.guard import process_scope
from gpuhook.device_plugin.guard.process_scope import Home
from gpuhook.device_plugin.metrics import cgroup_names
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files, procfs
from gpuhook.kernel import mountinfo
from gpuhook.request import memory_request
from gpuhook.vendors.nvidia.hot.vocabulary import VOCABULARY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuhook.device_plugin.metrics.cgroup_names import Membership
    from gpuhook.kernel.mountinfo import Mount

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_HOST_DEVICES = "devtmpfs"  # what the kernel itself keeps at /dev
_MAX_STAT = 1 << 16
_MAX_CGROUP = 1 << 18
_MAX_MOUNTINFO = 4 << 20


@dataclass(frozen=True, slots=True)
class About:
    """When a process started, in clock ticks since boot, and where it is.

    `home` is None where that may not be looked at.
    """

    started: int
    member: Membership
    home: Home | None = None


class Processes:
    """The processes below `proc`, which have the pids that the driver tells."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def trouble(self) -> GpuhookError | None:
        """Return GH1885 where pids are not those of the host, which the driver's are."""
        try:
            found = os.stat(f"{self._proc}/self/ns/pid").st_ino
            # A /proc from elsewhere calls us by another pid, or does not know us.
            is_ours = os.readlink(f"{self._proc}/self") == str(os.getpid())
        except OSError as error:
            return fault("GH1885", reason=f"{error.filename}: {error.strerror}")
        if found != _FIRST_PID_NAMESPACE or not is_ours:
            return fault("GH1885", reason="the plugin is in a pid namespace of its own")
        return None

    def about(self, pid: int) -> About | None:
        """Return what there is to know of a process, None if it has ended."""
        started = self._started(pid)
        cgroups = self._cgroups(pid)
        mounts = self._mounts(pid)
        if started is None or self._started(pid) != started:
            return None
        home = Home(process_scope.cgroups(cgroups), mounts) if mounts else None
        return About(started, cgroup_names.parse(cgroups), home)

    def hosts(self) -> frozenset[tuple[int, int]] | None:
        """Return the mount namespaces that are no container's: the host's, and this process's.

        None where they may not be looked at. Who may not look at the host's first process may look
        at none that has as many capabilities, so hardly at one of the host's: their homes are None.
        """
        host, ours = self._mounts(1), self._mounts(os.getpid())
        return frozenset((ours, host or ours)) if ours else None

    def grants(self, pid: int) -> dict[str, int] | None:
        """Return what the mounts of a process's container grant: bytes by device UUID.

        A process that called chroot(2) sees no mount outside of its root directory, so its parents
        in the container are asked too. None where all of them may hide mounts.
        """
        cgroups = self._cgroups(pid)
        for one in (pid, *procfs.parents(pid, self._proc)):
            if self._cgroups(one) != cgroups:
                break  # the container's first process was the one before
            mounts = self._mounted(one)
            found = _granted(mounts)
            if found:
                return found
            if _has_root(mounts) and self._has_our_users(one):
                return {}
        return None if self._started(pid) is not None else {}

    def _mounted(self, pid: int) -> list[Mount]:
        try:
            return mountinfo.parse(files.read(f"{self._proc}/{pid}/mountinfo", _MAX_MOUNTINFO))
        except (OSError, GpuhookError):
            return []

    def _has_our_users(self, pid: int) -> bool:
        """Return whether a process is in our user namespace.

        In its own user namespace a process can make a mount namespace with any content.
        """
        try:
            theirs, ours = (os.stat(f"{self._proc}/{one}/ns/user") for one in (pid, "self"))
        except OSError:
            return False
        return os.path.samestat(theirs, ours)

    def send(self, pid: int, name: str, is_still: Callable[[], bool]) -> bool:
        """Send a signal if `is_still()`, which is asked while the pid cannot become another's.

        Returns whether it was sent. Raises GH1886 where it may not be.
        """
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return False
        except OSError as error:
            raise fault("GH1886", pid=pid, reason=error.strerror) from error
        try:
            if not is_still():
                return False
            signal.pidfd_send_signal(descriptor, signal.Signals[name])
        except ProcessLookupError:
            return False
        except OSError as error:
            raise fault("GH1886", pid=pid, reason=error.strerror) from error
        finally:
            os.close(descriptor)
        return True

    def _cgroups(self, pid: int) -> str:
        try:
            content = files.read(f"{self._proc}/{pid}/cgroup", _MAX_CGROUP)
        except (OSError, GpuhookError):
            return ""
        return content.decode("utf-8", "replace")

    def _mounts(self, pid: int) -> tuple[int, int] | None:
        try:
            found = os.stat(f"{self._proc}/{pid}/ns/mnt")
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _started(self, pid: int) -> int | None:
        return procfs.start_time(pid, self._proc)


def _granted(mounts: list[Mount]) -> dict[str, int]:
    """Return what mounts grant: bytes by device UUID.

    An image's /var/run usually leads to /run, and mounts are told by where they are. Only the
    host's own /dev/null counts: a pod can mount a file of that name from its own volume.
    """
    prefix = VOCABULARY.memory_prefix
    places = prefix, prefix.replace("/var/run/", "/run/", 1)
    of_host = [
        {"destination": mount.target, "source": "/dev/null"}
        for mount in mounts
        if mount.target.startswith(tuple(place + "/" for place in places))
        and mount.root == "/null"
        and mount.fstype == _HOST_DEVICES
    ]
    found: dict[str, int] = {}
    for place in places if of_host else ():
        for device, limit in memory_request.granted({"mounts": of_host}, place).items():
            found[device] = min(limit.hard, found.get(device, limit.hard))
    return found


def _has_root(mounts: list[Mount]) -> bool:
    """Return whether mounts are those that a process sees from a container's root directory.

    Every engine mounts /proc. Below chroot(2) there is none at that path, and a container without
    CAP_SYS_ADMIN cannot make one.
    """
    has_proc = any((one.target, one.fstype, one.root) == ("/proc", "proc", "/") for one in mounts)
    return has_proc and any(mount.target == "/" for mount in mounts)
