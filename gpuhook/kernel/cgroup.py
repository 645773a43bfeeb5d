# SPDX-License-Identifier: Apache-2.0
"""The cgroup of a process: the device files of v1, and the freezers of both versions.

Sources: cgroups(7), proc(5), the kernel's cgroup-v1/devices.rst and freezer-subsystem.rst,
cgroup-v2.rst (cgroup.events). A freezer's state is the effective one: a frozen parent included.
"""

from __future__ import annotations

import errno
import os

from gpuhook.host.hot import files, procfs
from gpuhook.kernel import mountinfo

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.kernel.mountinfo import Mount

MOUNT_POINT = "/sys/fs/cgroup"
V1, V2 = "v1", "v2"
_MOUNTINFO = "/proc/self/mountinfo"
_LIMIT = 16 << 20
_FROZEN = (b"FROZEN", b"FREEZING")
# crun puts the container into a cgroup of this name in its scope, and records that one; the
# scope is the container's as well, and systemd attaches its program to it.
_SUBGROUP = ".scope/container"
_V1_REASONS = {
    errno.EPERM: "not permitted: the parent cgroup denies it, or this is not the host's root",
    errno.EINVAL: "the kernel does not accept this rule",
}


class DeviceCgroup:
    """A cgroup that controls devices: `version` is V1 or V2.

    `name` is its path in /proc/PID/cgroup, `path` its directory, `top` the directory of the highest
    cgroup that is visible here. `own` are the directories of the container's cgroups, from this one
    upwards, and `unit` is the name of the highest of them.
    """

    __slots__ = ("name", "own", "path", "top", "unit", "version")

    def __init__(
        self, version: str, name: str, path: str, top: str, own: list[str] | None = None
    ) -> None:
        self.version = version
        self.name = name
        self.path = path
        self.top = top
        self.own = own_cgroups(self.upwards()) if own is None else own
        levels = len(self.own) - 1
        self.unit = name.rsplit("/", levels)[0] if levels else name

    @classmethod
    def parse(
        cls, cgroup_file: bytes, recorded: str | None = None, mounts: bytes | None = None
    ) -> DeviceCgroup | None:
        """Return the cgroup that a /proc/PID/cgroup names, by the mounts of our namespace.

        v2 if it is mounted at /sys/fs/cgroup, else the v1 devices hierarchy; None without either,
        for a cgroup outside of the mount, and for a cgroup that is not the container's own.
        `recorded` is the name that the container's runtime recorded, "" for none: the process may
        have moved to a cgroup below it. With None, the process is assumed to be where its runtime
        has put it. `mounts` is our mountinfo, which is read if it is None. Raises OSError.
        """
        mounted = _mounted(files.read(_MOUNTINFO, _LIMIT) if mounts is None else mounts)
        if mounted is None:
            return None
        version, root, point = mounted
        name = _name(cgroup_file, version)
        if name is None or ".." in name.split("/"):
            return None
        if recorded is not None:
            return cls._recorded(version, name, recorded, root, point)
        inside = below(name, root)
        if inside is None or _is_ours(name, version):
            return None
        return cls(version, name, point + inside, point)

    @classmethod
    def _recorded(
        cls, version: str, name: str, recorded: str, root: str, point: str
    ) -> DeviceCgroup | None:
        """Return the cgroup that a runtime recorded, with those below it up to the process's.

        If the process has left it, it is still the cgroup of the container's other processes.
        """
        if recorded.endswith(_SUBGROUP):
            recorded = recorded[: -len(_SUBGROUP) + len(".scope")]
        if recorded in ("", "/"):
            return None
        has_left = below(name, recorded) is None
        name = recorded if has_left else name
        inside = below(name, root)
        if inside is None or (has_left and not os.path.isdir(point + inside)):
            return None
        levels = name[len(recorded) :].count("/") + 1
        return cls(version, name, point + inside, point, _upwards(point + inside, point)[:levels])

    def upwards(self) -> list[str]:
        """Return the directories of the cgroup and of those above it, upwards."""
        return _upwards(self.path, self.top)


def _upwards(path: str, top: str) -> list[str]:
    found = [path]
    while found[-1] != top:
        found.append(os.path.dirname(found[-1]))
    return found


def _is_ours(name: str, version: str) -> bool:
    """Return whether a cgroup is the root, or our own: it is not a container's."""
    return name in ("/", _name(files.read("/proc/self/cgroup", _LIMIT), version))


def own_cgroups(upwards: list[str]) -> list[str]:
    """Return the cgroups of a container from those of a process and those above it.

    These are the cgroup in which the runtime has put the process, and crun's scope around it. A
    scope further up belongs to another container or a login session.
    """
    return upwards[: 2 if upwards[0].endswith(_SUBGROUP) else 1]


def devices_list(path: str) -> list[str]:
    """Return the lines of a v1 cgroup's devices.list; raises OSError."""
    return files.read(f"{path}/devices.list", _LIMIT).decode("ascii", "replace").splitlines()


def devices_write(path: str, lines: Iterable[str], *, allow: bool) -> None:
    """Write rules such as "c 195:0 rw" to a v1 cgroup's devices.allow or devices.deny.

    Raises OSError with the file and the rule.
    """
    name = f"{path}/devices.{'allow' if allow else 'deny'}"
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for line in lines:
            try:
                os.write(fd, line.encode())  # one rule a write: devices.rst
            except OSError as error:
                reason = _V1_REASONS.get(error.errno or 0) or error.strerror
                raise OSError(error.errno, f"{line}: {reason}", name) from error
    finally:
        os.close(fd)


def hierarchy(mounts: bytes | None = None) -> str | None:
    """Return V2 if it is mounted at /sys/fs/cgroup, else V1; None without either."""
    mounted = _mounted(files.read(_MOUNTINFO, _LIMIT) if mounts is None else mounts)
    return None if mounted is None else mounted[0]


def name_of(cgroup_file: bytes) -> str | None:
    """Return the name of the v2 cgroup in a /proc/PID/cgroup, None without one."""
    return _name(cgroup_file, "v2")


def processes(path: str) -> list[int]:
    """Return the pids in a v2 cgroup, without those below it; 0 is a process of another namespace.

    Raises OSError.
    """
    return [int(line) for line in files.read(f"{path}/cgroup.procs", _LIMIT).split()]


def is_populated(path: str) -> bool:
    """Return whether a process is in a v2 cgroup or below it; raises OSError."""
    return b"populated 1" in files.read(f"{path}/cgroup.events", _LIMIT)


def _mounted(content: bytes) -> tuple[str, str, str] | None:
    """Return version, root and mount point of the hierarchy that controls devices."""
    v1 = v2 = None
    for mount in mountinfo.parse(content):
        if mount.fstype == "cgroup2" and mount.target == MOUNT_POINT:
            v2 = (V2, mount.root, mount.target)
        elif mount.fstype == "cgroup" and "devices" in mount.features:
            v1 = (V1, mount.root, mount.target)
    return v2 or v1


def _name(cgroup_file: bytes, version: str) -> str | None:
    for number, controllers, name in procfs.cgroups(cgroup_file):
        is_v2 = number == b"0" and not controllers
        if is_v2 if version == V2 else b"devices" in controllers:
            return os.fsdecode(name)
    return None


def below(name: str, root: str) -> str | None:
    """Return the path of a cgroup below a mount whose root is the cgroup `root`, "" for itself.

    None if it is outside, also outside of our cgroup namespace, where its name contains ".."
    (cgroup_namespaces(7)), and for a name that is not absolute.
    """
    if ".." in name.split("/") or not name.startswith("/"):
        return None
    if root == "/":
        return "" if name == "/" else name
    if name == root or name.startswith(root + "/"):
        return name[len(root) :]
    return None


def hierarchies() -> list[Mount]:
    """Return the mounts of cgroups in this mount namespace."""
    mounted = mountinfo.parse(files.read(_MOUNTINFO, _LIMIT))
    return [mount for mount in mounted if mount.fstype in ("cgroup", "cgroup2")]


def is_frozen(cgroup: bytes, mounted: list[Mount] | None = None) -> bool:
    """Return whether a process is frozen; `cgroup` is the content of its /proc/PID/cgroup.

    False if its hierarchy is not mounted here, or its cgroup is outside of the mount. `mounted` is
    what hierarchies() returns, for callers that have many processes.
    """
    mounted = hierarchies() if mounted is None else mounted
    for _, controllers, path in procfs.cgroups(cgroup):
        for mount in mounted:
            if not _has_freezer(mount, controllers):
                continue
            inside = below(os.fsdecode(path), mount.root)
            if inside is not None and _says_frozen(mount.target + inside):
                return True
    return False


def _has_freezer(mount: Mount, controllers: list[bytes]) -> bool:
    """Return whether a mount is the hierarchy of a line of /proc/PID/cgroup, and has a freezer."""
    if not controllers:
        return mount.fstype == "cgroup2"
    return mount.fstype == "cgroup" and b"freezer" in controllers and "freezer" in mount.features


def _says_frozen(directory: str) -> bool:
    events = _words(os.path.join(directory, "cgroup.events"))
    if events:
        return dict(zip(events[::2], events[1::2])).get(b"frozen") == b"1"
    return any(word in _FROZEN for word in _words(os.path.join(directory, "freezer.state")))


def _words(path: str) -> list[bytes]:
    """Return the words of a file, [] if it does not exist, as in the root of a hierarchy."""
    try:
        return files.read(path, 4096).split()
    except OSError:
        return []
