# SPDX-License-Identifier: Apache-2.0
"""The processes on the host: their container, its memory grants, and signals.

The cgroup of a process usually has the container's name. A config.json may name any cgroup, also a
shared one. A process in such a cgroup belongs to a container only if it is in the cgroups of the
container's first process, or below, and has the same mount namespace. Containers in the ledger that
share cgroups or mounts have no scope.

A pid may be reused, so a process is identified by pid and start time, and signals are sent through
a pidfd. Sources: proc(5), pidfd_open(2); for the inode of the initial pid namespace the kernel's
include/linux/proc_ns.h, PROC_PID_INIT_INO.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from itertools import combinations

from gpuhook.device_plugin.metrics import cgroup_names
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files, procfs
from gpuhook.kernel import mountinfo
from gpuhook.request import memory_request
from gpuhook.request.parse import Vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gpuhook.device_plugin.metrics.cgroup_names import Membership
    from gpuhook.kernel.mountinfo import Mount

_FIRST_PID_NAMESPACE = 0xEFFFFFFC
_HOST_DEVICES = "devtmpfs"  # the type of the host's /dev
_MAX_CGROUP = 1 << 18
_MAX_MOUNTINFO = 4 << 20
# The first process of a container: its pid, and its start in clock ticks since boot.
FirstProcess = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ProcessScope:
    """The cgroups of a process by hierarchy, and its mount namespace."""

    cgroups: tuple[tuple[str, str], ...]
    mounts: tuple[int, int]

    def holds(self, other: ProcessScope) -> bool:
        """Return whether `other` has the same mounts, and the same cgroups or cgroups below."""
        return self.mounts == other.mounts and self.is_above(other)

    def is_above(self, other: ProcessScope) -> bool:
        """Return whether `other` is in the same cgroups or below, not counting the root cgroup."""
        theirs = dict(other.cgroups)
        is_own = any(path != "/" for _, path in self.cgroups)
        return is_own and all(_is_below(theirs.get(kind), path) for kind, path in self.cgroups)


def scope_cgroups(content: bytes) -> tuple[tuple[str, str], ...]:
    """Parse /proc/PID/cgroup: the cgroup in each hierarchy.

    >>> scope_cgroups(b"2:cpu,cpuacct:/a:b" + bytes([10]) + b"0::/c")
    (('', '/c'), ('cpu,cpuacct', '/a:b'))
    """
    return tuple(
        sorted(
            (os.fsdecode(b",".join(controllers)), os.fsdecode(path))
            for _, controllers, path in procfs.cgroups(content)
        )
    )


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """The start of a process in clock ticks since boot, its cgroup names and its scope.

    `scope` is None without permission to read it.
    """

    started: int
    member: Membership
    scope: ProcessScope | None = None


class Processes:
    """The processes in `proc`, with the pids that the driver reports."""

    def __init__(self, proc: str = "/proc") -> None:
        self._proc = proc

    def trouble(self) -> GpuhookError | None:
        """Return GH1885 if the pids here are not the host's, which the driver reports."""
        try:
            namespace = os.stat(f"{self._proc}/self/ns/pid").st_ino
            # In the /proc of another pid namespace this process has another pid, or none.
            is_ours = os.readlink(f"{self._proc}/self") == str(os.getpid())
        except OSError as error:
            return fault("GH1885", reason=f"{error.filename}: {error.strerror}")
        if namespace != _FIRST_PID_NAMESPACE or not is_ours:
            return fault("GH1885", reason="the plugin is in its own pid namespace")
        return None

    def about(self, pid: int) -> ProcessFacts | None:
        """Return the facts about a process, None if it has exited."""
        started = self._started(pid)
        content = self._cgroups(pid)
        mounts = self._mounts(pid)
        if started is None or self._started(pid) != started:
            return None
        scope = ProcessScope(scope_cgroups(content), mounts) if mounts else None
        return ProcessFacts(started, cgroup_names.parse(content), scope)

    def host_mounts(self) -> frozenset[tuple[int, int]] | None:
        """Return the mount namespaces outside of containers: the host's and this process's.

        None without permission. A process that may not read that of the host's first process may
        not read those of equally privileged processes on the host either: their scopes are None.
        """
        host, ours = self._mounts(1), self._mounts(os.getpid())
        return frozenset((ours, host or ours)) if ours else None

    def grants(self, pid: int) -> dict[str, int] | None:
        """Return the memory that the mounts of a process's container grant: bytes by device UUID.

        After chroot(2) a process does not see mounts outside of its root directory, so its parents
        in the container are read, too. None if all of them may hide mounts.
        """
        cgroups = self._cgroups(pid)
        for one in (pid, *procfs.parents(pid, self._proc)):
            if self._cgroups(one) != cgroups:
                break  # the previous one was the container's first process
            mounts = self._mounted(one)
            limits = _granted(mounts)
            if limits:
                return limits
            if _has_root(mounts) and self._is_in_our_user_namespace(one):
                return {}
        return None if self._started(pid) is not None else {}

    def _mounted(self, pid: int) -> list[Mount]:
        try:
            return mountinfo.parse(files.read(f"{self._proc}/{pid}/mountinfo", _MAX_MOUNTINFO))
        except (OSError, GpuhookError):
            return []

    def _is_in_our_user_namespace(self, pid: int) -> bool:
        """Return whether a process is in this process's user namespace.

        In its own user namespace a process can create a mount namespace with any content.
        """
        try:
            theirs, ours = (os.stat(f"{self._proc}/{one}/ns/user") for one in (pid, "self"))
        except OSError:
            return False
        return os.path.samestat(theirs, ours)

    def send(self, pid: int, name: str, is_still: Callable[[], bool]) -> bool:
        """Send a signal if `is_still()`, which is called while a pidfd holds the process.

        Returns whether it was sent. Raises GH1886 without permission.
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

    def _cgroups(self, pid: int) -> bytes:
        try:
            return files.read(f"{self._proc}/{pid}/cgroup", _MAX_CGROUP)
        except (OSError, GpuhookError):
            return b""

    def _mounts(self, pid: int) -> tuple[int, int] | None:
        try:
            namespace = os.stat(f"{self._proc}/{pid}/ns/mnt")
        except OSError:
            return None
        return namespace.st_dev, namespace.st_ino

    def _started(self, pid: int) -> int | None:
        return procfs.start_time(pid, self._proc)


def _granted(mounts: list[Mount]) -> dict[str, int]:
    """Return the memory that mounts grant: bytes by device UUID.

    In most images /var/run is a link to /run, and mountinfo has the resolved path. Only the host's
    /dev/null is a grant: a pod can mount a file with that name from its volume.
    """
    prefix = Vocabulary.memory_prefix
    places = prefix, prefix.replace("/var/run/", "/run/", 1)
    of_host = [
        {"destination": mount.target, "source": "/dev/null"}
        for mount in mounts
        if mount.target.startswith(tuple(place + "/" for place in places))
        and mount.root == "/null"
        and mount.fstype == _HOST_DEVICES
    ]
    limits: dict[str, int] = {}
    for place in places if of_host else ():
        for device, limit in memory_request.granted({"mounts": of_host}, place).items():
            limits[device] = min(limit.hard, limits.get(device, limit.hard))
    return limits


def _has_root(mounts: list[Mount]) -> bool:
    """Return whether a process with these mounts sees the root directory of its container.

    Every engine mounts /proc. After chroot(2) there is no mount at that path, and a container
    without CAP_SYS_ADMIN cannot create one.
    """
    has_proc = any((one.target, one.fstype, one.root) == ("/proc", "proc", "/") for one in mounts)
    return has_proc and any(mount.target == "/" for mount in mounts)


def first_processes(
    kernel: Processes, firsts: Mapping[str, FirstProcess]
) -> dict[str, ProcessFacts]:
    """Return the facts of the running first processes by container, without those of the host.

    The scope of a process is None if this process may not read it.
    """
    hosts = kernel.host_mounts()
    if hosts is None:
        return {}
    facts = {container: kernel.about(pid) for container, (pid, _) in firsts.items()}
    return {
        container: about
        for container, about in facts.items()
        if about is not None and about.started == firsts[container][1]
        if about.scope is None or about.scope.mounts not in hosts
    }


def container_scopes(first: Mapping[str, ProcessFacts]) -> dict[str, ProcessScope]:
    """Return the scopes of containers by id, without those that share mounts or cgroups."""
    scopes = {one: about.scope for one, about in first.items() if about.scope is not None}
    shared: set[str] = set()
    for (one, scope), (other, theirs) in combinations(scopes.items(), 2):
        if scope.mounts == theirs.mounts or scope.is_above(theirs) or theirs.is_above(scope):
            shared.update((one, other))
    return {one: scope for one, scope in scopes.items() if one not in shared}


def process_container(
    about: ProcessFacts, known: Collection[str], scopes: Mapping[str, ProcessScope]
) -> str | None:
    """Return the id of a process's container, None for a process on the host.

    Names of cgroups have priority.
    """
    named = about.member.outermost(known)
    if named is not None or about.scope is None:
        return named
    matches = [one for one, scope in scopes.items() if scope.holds(about.scope)]
    return matches[0] if len(matches) == 1 else None


def _is_below(path: str | None, other: str) -> bool:
    if path is None:
        return False
    return path == other or path.startswith(other.rstrip("/") + "/")
