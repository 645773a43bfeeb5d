# SPDX-License-Identifier: Apache-2.0
"""The cgroups by which a driver limits a container's memory of a device: v2's, its very own.

WARM. Names of cgroups are those of the host's cgroup namespace, whichever one a container has.
Sources: cgroups(7), cgroup_namespaces(7).
"""

from __future__ import annotations

import os

from gpuhook import state
from gpuhook.container.membership import parents
from gpuhook.errors import fault
from gpuhook.kernel import cgroup, namespaces

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.container.process import Process

_HOST = "/proc/1/ns/cgroup"
_SHOWN = 5  # pids in a message


def directories(process: Process, recorded: str | None) -> list[str]:
    """Return the directories of the container's own cgroups, from the process's upwards.

    `recorded` is the name that the container's runtime wrote down, "" for none, None while the
    runtime is at work, as for kernel.cgroup.DeviceCgroup.of. Raises GH1312 where the node's
    cgroups are v1, GH1313 where the container has none of its own, and OSError.
    """
    if cgroup.hierarchy() == "v1":
        raise fault("GH1312")
    found = cgroup.DeviceCgroup.of(process.read("cgroup"), recorded)
    if found is None or found.version != "v2":
        raise fault("GH1313", reason=_why_none(process))
    return found.own


def entered(process: Process) -> list[str]:
    """Return what directories() returns, to a process that is in the container's cgroup itself.

    This process goes over to the host's cgroup namespace: in another one cgroups have other names.
    Raises GH1315 where it may not, as in a user namespace, besides.
    """
    require_hosts_root()
    _enter_hosts_namespace()
    name = cgroup.name_of(process.read("cgroup"))
    return directories(process, name if name is not None else "")


def require_alone(own: list[str], process: Process) -> None:
    """Raise GH1314 if others are in the cgroups `own` than `process` and those that it started.

    For a container that is being made; later its processes are anybody's children.
    """
    for path in own:
        others = [
            pid
            for pid in cgroup.processes(path)
            if pid != process.pid and process.pid not in parents(pid)
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
    if os.geteuid() != 0:
        raise fault("GH1315", reason=f"this is user {os.geteuid()}")
    inode = os.stat("/proc/self/ns/user").st_ino
    if state.is_rootless() or not namespaces.is_initial_user_namespace(inode):
        raise fault("GH1315", reason="this is the root of a user namespace")


def _enter_hosts_namespace() -> None:
    try:
        host, ours = os.stat(_HOST), os.stat("/proc/self/ns/cgroup")
    except FileNotFoundError:
        return  # a kernel without cgroup namespaces
    if (host.st_dev, host.st_ino) == (ours.st_dev, ours.st_ino):
        return
    fd = os.open(_HOST, os.O_RDONLY | os.O_CLOEXEC)
    try:
        namespaces.enter_cgroup_namespace(fd)
    finally:
        os.close(fd)


def _why_none(process: Process) -> str:
    if cgroup.hierarchy() is None:
        return "no cgroups are mounted at /sys/fs/cgroup"
    name = cgroup.name_of(process.read("cgroup"))
    if name is None or ".." in name.split("/"):
        return "its cgroup cannot be seen from here"
    return f"it is in {name}, as others are"
