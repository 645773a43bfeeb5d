# SPDX-License-Identifier: Apache-2.0
"""The container of a process, and the processes of a container.

A runtime records only its container's init; another process is in the same container if they share
namespaces or cgroups. Source: namespaces(7), pid_namespaces(7), ioctl_ns(2).
"""

from __future__ import annotations

import os

from gpuhook.containers.warm import runtime_state
from gpuhook.containers.warm.process_handle import Process
from gpuhook.containers.warm.runtime_state import Found
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import procfs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_NS_GET_PARENT = 0xB702  # linux/nsfs.h
_MAX_DEPTH = 64  # pid_namespaces(7): they nest 32 deep; a chain of parents inside is short


def of_pid(pid: int, known: list[Found]) -> Found:
    """Return the container of process `pid`: one of `known`, else one that only the pid names.

    Raises GH1730 if there is no such process, GH1737 if it sees the mounts of the host.
    """
    for found in known:
        if found.pid == pid:
            return found
    with Process(pid) as process:
        mounts = process.namespace("mnt")
        if mounts in host_namespaces("mnt"):
            raise fault("GH1737", pid=pid)
        for found in known:
            if _namespace(found, "mnt") == mounts:
                return found
        by_pid = {found.pid: found for found in known}
        for parent in procfs.parents(pid):
            if parent in by_pid:
                return by_pid[parent]
        pids = process.namespace("pid")
        sharing = [found for found in known if _namespace(found, "pid") == pids]
        if len(sharing) == 1 and pids not in host_namespaces("pid"):
            return sharing[0]
        alone = Found(f"pid-{pid}", pid, process.started)
        alone.status = runtime_state.status(process)
        return alone


def host_namespaces(kind: str) -> set[tuple[int, int]]:
    """Return the host's namespaces: ours, and those of its first process."""
    host = set()
    for pid in (os.getpid(), 1):
        try:
            with Process(pid) as process:
                host.add(process.namespace(kind))
        except GpuhookError:
            continue  # process 1 and containers of other users are hidden from a user
    return host


def _namespace(found: Found, kind: str) -> tuple[int, int] | None:
    try:
        with found.process() as process:
            return process.namespace(kind)
    except GpuhookError:
        return None  # it ended meanwhile, or belongs to another user


def members(init: Process) -> Iterator[Process]:
    """Yield the processes of a container, `init` being its first; each is closed after its turn.

    These processes see its mounts, are in its pid namespace or one below it, or are in its cgroup
    or one below it: a process may leave any of these, but hardly all of them. A process that sees
    the host's mounts is not a member: a container without its own cgroup is in its user's.
    """
    container = _Container(init)
    for pid in procfs.pids():
        try:
            process = Process(pid)
        except GpuhookError:
            continue  # it has exited meanwhile
        with process:
            if container.has(process):
                yield process


def has_own_cgroup(init: Process) -> bool:
    """Return whether only the container's processes are in the cgroups of its first process."""
    container = _Container(init)
    for pid in procfs.pids():
        try:
            with Process(pid) as process:
                if _cgroups(process) == _cgroups(init) and not container.sees(process):
                    return False
        except (GpuhookError, OSError):
            continue  # it has exited meanwhile, or is hidden from every user
    return True


class _Container:
    """What the processes of a container share."""

    def __init__(self, init: Process) -> None:
        self._is_shared: bool | None = None  # its cgroup, not known yet
        self._mounts = init.namespace("mnt")
        self._host_mounts = host_namespaces("mnt")
        self._pids = init.namespace("pid")
        self._shares_pids = self._pids in host_namespaces("pid")
        self._cgroups = _cgroups(init)

    def sees(self, process: Process) -> bool:
        """Return whether a process has the container's mounts, or is in its pid namespace."""
        mounts = process.namespace("mnt")
        if mounts == self._mounts:
            return True
        if mounts in self._host_mounts:
            return False
        return not self._shares_pids and _is_inside(process, self._pids)

    def has(self, process: Process) -> bool:
        """Return whether a process is in the container; by cgroup if its namespaces are hidden."""
        try:
            if self.sees(process):
                return True
            if process.namespace("mnt") in self._host_mounts:
                return False
            return self._is_in_own_cgroup(process)
        except GpuhookError as error:
            return error.code == "GH1733" and self._is_in_own_cgroup(process)
        except OSError:
            return False  # it is ending

    def _is_in_own_cgroup(self, process: Process) -> bool:
        """Return whether a process is in the container's cgroup, and that is not also the host's.

        A rootless engine may leave a container in the cgroup of its user's session.
        """
        if not _is_below(process, self._cgroups):
            return False
        if self._is_shared is None:
            self._is_shared = any(map(self._is_of_host, procfs.pids()))
        return not self._is_shared

    def _is_of_host(self, pid: int) -> bool:
        """Return whether a process sees the host's mounts and is in the container's cgroup."""
        try:
            with Process(pid) as process:
                is_host = process.namespace("mnt") in self._host_mounts
                return is_host and _cgroups(process) == self._cgroups
        except (GpuhookError, OSError):
            return False  # it has exited meanwhile, or is hidden from this user


def _is_inside(process: Process, pids: tuple[int, int]) -> bool:
    """Return whether a process is in the pid namespace `pids` or in one below it."""
    import fcntl

    fd = process.open("ns/pid", os.O_RDONLY)
    try:
        for _ in range(_MAX_DEPTH):
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) == pids:
                return True
            parent = fcntl.ioctl(fd, _NS_GET_PARENT)
            os.close(fd)
            fd = parent
    except OSError:
        return False  # EPERM: the next one up is not below ours
    finally:
        os.close(fd)
    return False


def _cgroups(process: Process) -> list[tuple[bytes, bytes]]:
    """Return (hierarchy number, path) of each cgroup of a process, without roots of hierarchies."""
    lines = procfs.cgroups(process.read("cgroup"))
    return [(number, path) for number, _, path in lines if path not in (b"", b"/")]


def _is_below(process: Process, cgroups: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a process is in one of these cgroups or below it."""
    try:
        held = _cgroups(process)
    except GpuhookError:
        return False  # it has exited meanwhile
    return any(
        hierarchy == of and (path + b"/").startswith(above + b"/")
        for hierarchy, path in held
        for of, above in cgroups
    )
