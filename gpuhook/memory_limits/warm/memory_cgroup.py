# SPDX-License-Identifier: Apache-2.0
"""The cgroups to which a driver's limits of a container apply: those of v2 that are its own.

Names of cgroups are those of its runtime's cgroup namespace, whatever the container's is. Sources:
cgroups(7), cgroup_namespaces(7).
"""

from __future__ import annotations

import os

from gpuhook.containers.warm.process_handle import is_hosts_root
from gpuhook.errors import fault
from gpuhook.host.hot import files, procfs
from gpuhook.kernel import cgroup, namespaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.containers.warm.process_handle import Process

_NAMESPACE = "/proc/{}/ns/cgroup"
_SHOWN = 5  # pids in a message


def directories(process: Process, recorded: str | None) -> list[str]:
    """Return the directories of the container's own cgroups, from the process's upwards.

    `recorded` is the name that the container's runtime recorded, "" for none, None while the
    runtime is creating the container, as for kernel.cgroup.DeviceCgroup.parse. Raises GH1312 if the
    node's cgroups are v1, GH1313 if the container does not have its own, and OSError.
    """
    if cgroup.hierarchy() == "v1":
        raise fault("GH1312")
    found = cgroup.DeviceCgroup.parse(process.read("cgroup"), recorded)
    if found is None or found.version != "v2":
        raise fault("GH1313", reason=_why_none(process))
    return found.own


def entered(process: Process) -> list[str]:
    """Return what directories() returns, to a process that is in the container's cgroup itself.

    This process enters the runtime's cgroup namespace: in another one, cgroups have other names.
    Also raises GH1315 if that is not permitted, as in a user namespace.
    """
    require_hosts_root()
    _leave_namespace(process)
    name = cgroup.name_of(process.read("cgroup"))
    return directories(process, name if name is not None else "")


def require_alone(own: list[str], process: Process) -> None:
    """Raise GH1314 if processes other than `process` and its children are in the cgroups `own`.

    For a container that is being created; later its processes have other parents. In the
    container's own pid namespace, with the host's /proc, every visible process belongs to it.
    """
    is_within = _is_in_own_pid_namespace()
    for path in own:
        others = [
            pid
            for pid in cgroup.processes(path)
            if pid == 0
            or not (is_within or pid == process.pid or process.pid in procfs.parents(pid))
        ]
        if others:
            pids = ", ".join(map(str, others[:_SHOWN])) + (", ..." if others[_SHOWN:] else "")
            raise fault("GH1314", path=path, pids=pids)
        below = [f"{path}/{entry.name}" for entry in os.scandir(path) if entry.is_dir()]
        for other in below:
            if other not in own and cgroup.is_populated(other):
                raise fault("GH1314", path=path, pids=f"those of {other}")


def require_hosts_root() -> None:
    """Raise GH1315 unless this process is the host's root."""
    if not is_hosts_root():
        user = os.geteuid()
        who = f"user {user}" if user else "the root of a user namespace"
        raise fault("GH1315", reason=f"this is {who}")


def _leave_namespace(process: Process) -> None:
    """Enter the cgroup namespace of the container's runtime, if this process is in another one.

    The runtime is the parent of `process`, and waits for its hooks.
    """
    ours = os.stat(_NAMESPACE.format("self"))
    for pid in procfs.parents(process.pid):
        path = _NAMESPACE.format(pid)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # a kernel without cgroup namespaces
        except PermissionError as error:
            raise fault("GH1315", reason=f"{path}: {error.strerror}") from error
        try:
            found = os.fstat(fd)
            if (found.st_dev, found.st_ino) != (ours.st_dev, ours.st_ino):
                namespaces.enter_cgroup_namespace(fd)
        finally:
            os.close(fd)
        return


def _is_in_own_pid_namespace() -> bool:
    """Return whether our pids differ from those of the mounted /proc."""
    for line in files.read("/proc/self/status", 65536).split(b"\n"):
        if line.startswith(b"NSpid:"):
            return len(line.split()) > 2
    return False


def _why_none(process: Process) -> str:
    if cgroup.hierarchy() is None:
        return "no cgroups are mounted at /sys/fs/cgroup"
    name = cgroup.name_of(process.read("cgroup"))
    if name is None or ".." in name.split("/"):
        return "its cgroup is not visible here"
    return f"it shares {name} with other processes"
