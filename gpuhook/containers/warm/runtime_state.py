# SPDX-License-Identifier: Apache-2.0
"""The state that runc and crun keep of their containers.

runc keeps ROOT/ID/state.json and crun ROOT/ID/status; both formats are private to the runtime, and
read here so that no runtime has to be known and run to find a container. Whether a container lives
is read from the kernel, not from the file. Checked with runc 1.1 and crun 1.8.
"""

from __future__ import annotations

import os
import sys

from gpuhook.apply.spec import config_json
from gpuhook.containers.hot import first_process
from gpuhook.containers.warm import state_roots
from gpuhook.containers.warm.process_handle import Process
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson, files, state
from gpuhook.kernel import cgroup
from gpuhook.kernel.cgroup import MOUNT_POINT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuhook.kernel.mountinfo import Mount

RUNNING, PAUSED, CREATED, STOPPED = "running", "paused", "created", "stopped"
UNREADABLE = "unreadable"
_FILES = (("state.json", "runc"), ("status", "crun"))
_MAX_STATE = 16 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_NS_GET_OWNER_UID = 0xB704  # linux/nsfs.h


class UnreadableError(Exception):
    """The state of a container cannot be used; the text is the reason."""


class NoStateError(UnreadableError):
    """There is no container, or not yet: a directory without a state, or no directory."""


class StateBounds:
    """How many bytes are read of another user's states: of one file, and of all together."""

    __slots__ = ("left",)

    MOST = 256 << 10
    SUM = 4 << 20

    def __init__(self) -> None:
        self.left = self.SUM

    def take(self, size: int) -> None:
        """Record that so many bytes are read; raises UnreadableError past the sum."""
        if size > self.left:
            raise UnreadableError(
                f"the states of this user have more than {self.SUM} bytes in total"
            )
        self.left -= size


class Found:
    """A container, as its runtime knows it.

    `pid` and `started` (clock ticks since boot) are of its init, 0 and None if it is stopped.
    `bundle`, `root_path` (its root file system on the host) and `state_root` are "" if they are
    unknown, as are `runtime` (runc, crun), `engine` (containerd, docker, podman, cri-o), `name` and
    `image` by the engine; `pod` has what ledger.pod_of() returns. `owner` is the user who wrote its
    state, `cgroup` the name of its cgroup in the runtime's state: "" if the state has none, None
    without a runtime's state.
    """

    def __init__(self, identity: str, pid: int = 0, started: int | None = None) -> None:
        self.id = identity
        self.owner = os.geteuid()
        self.cgroup: str | None = None
        self.pid = pid
        self.started = started
        self.status = STOPPED
        self.bundle = ""
        self.root_path = ""
        self.state_root = ""
        self.runtime = ""
        self.engine = ""
        self.name = ""
        self.image = ""
        self.pod: dict[str, str] = {}

    def process(self) -> Process:
        """Return its init; GH1738 if it is stopped, GH1732 if another process has the pid."""
        if not self.pid:
            raise fault("GH1738", id=self.name or self.id, status=self.status)
        return Process(self.pid, self.started)

    @property
    def is_ours(self) -> bool:
        """Return whether root, or this user, wrote its state."""
        return self.owner in (0, os.geteuid())

    def config(self) -> dict[str, Any]:
        """Return its config.json, {} without a bundle; raises OSError, or GH1772.

        crun keeps a copy with its state, which is used if the bundle is gone. GH1755 if another
        user than root or this user owns it or can write it: it decides what the container was
        assigned. Root opens nothing that another user's state names.
        """
        if not self.bundle:
            return {}
        path = os.path.join(self.bundle, "config.json")
        if not self.is_ours and not state.is_rootless():
            raise fault("GH1755", path=path, user=self.owner)
        copy = os.path.join(self.state_root, self.id, "config.json")
        if self.runtime == "crun" and not os.path.exists(path):
            path = copy
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not state.usable(found):
                raise fault("GH1755", path=path, user=found.st_uid)
            raw = files.read_descriptor(fd, path, _MAX_STATE)
        finally:
            os.close(fd)
        try:
            return config_json.parsed(path, raw)
        except GpuhookError as error:
            raise fault("GH1772", reason=error.message) from error


def read(
    root: str,
    identity: str,
    fd: int | None = None,
    bounds: StateBounds | None = None,
    mounted: list[Mount] | None = None,
) -> Found:
    """Return container `identity` of the state root `root`; raises UnreadableError.

    No link is followed: a user's state directory could lead to another container's. `fd` is a
    descriptor of the root, and `bounds` apply to another user's state. `mounted` are the mounts of
    cgroups, if the caller has them.
    """
    try:
        path = os.path.join(root, identity) if fd is None else identity
        directory = os.open(path, _DIRECTORY, dir_fd=fd)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NoStateError(error.strerror) from error
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from error
    try:
        for name, runtime in _FILES:
            read_ = _read(directory, name, bounds)
            if read_ is None:
                continue
            document, owner = read_
            found = (_of_runc if runtime == "runc" else _of_crun)(identity, document)
            found.state_root, found.runtime = root, runtime
            found.owner = _user_of(root) or owner
            return _observed(found, directory, mounted)
    finally:
        os.close(directory)
    raise NoStateError("it has neither runc's state.json nor crun's status")


def is_path_ours(path: str) -> bool:
    """Return whether a container's state directory belongs to root or this user."""
    try:
        owner = _user_of(path) or os.lstat(path).st_uid
    except OSError:
        return False
    return owner in (0, os.geteuid())


def _user_of(root: str) -> int:
    """Return the user in whose runtime directory a state root is, 0 for none.

    In a user namespace it is the id there: the user that it maps to root is 0.
    """
    user = state_roots.user_of(root) or state_roots.user_of(os.path.realpath(root))
    return _mapped(user) if user and state.is_rootless() else user


def _mapped(user: int) -> int:
    """Return a user of the parent namespace as this user namespace has it: itself if unmapped."""
    for line in files.read("/proc/self/uid_map", 1 << 16).split(b"\n"):
        inside, outside, count = map(int, line.split() or (0, 0, 0))
        if outside <= user < outside + count:
            return inside + user - outside
    return user


def _read(
    directory: int, name: str, bounds: StateBounds | None
) -> tuple[dict[str, Any], int] | None:
    """Return the document and the owner of a state file, None without a file."""
    try:
        fd = os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{name}: {error.strerror or error}") from error
    try:
        owner = os.fstat(fd).st_uid
        if owner != os.fstat(directory).st_uid:
            raise UnreadableError(f"{name} does not belong to the owner of its directory")
        return _document(fd, name, bounds), owner
    finally:
        os.close(fd)


def _document(fd: int, name: str, bounds: StateBounds | None) -> dict[str, Any]:
    try:
        text = files.read_descriptor(fd, name, bounds.MOST if bounds else _MAX_STATE)
        if bounds is not None:
            bounds.take(len(text))
        document = fastjson.loads(text)
    except GpuhookError as error:
        raise UnreadableError(error.message) from error
    except (OSError, ValueError) as error:
        raise UnreadableError(f"{name}: {error}") from error
    if not isinstance(document, dict):
        raise UnreadableError(f"{name} is not a JSON object")
    return document


def _of_runc(identity: str, document: dict[str, Any]) -> Found:
    """Return the container of libcontainer's state; the bundle is one of its labels."""
    pid, started = first_process.KEYS["state.json"]
    found = Found(identity, _pid(document, pid))
    found.started = _ticks(document, started)
    found.cgroup = _cgroup(document.get("cgroup_paths"))
    config = document.get("config")
    if isinstance(config, dict):
        found.root_path = _path(config.get("rootfs"), "rootfs")
        for label in fastjson.strings(config, "labels"):
            if label.startswith("bundle="):
                found.bundle = _path(label[len("bundle=") :], "bundle")
    return found


def _of_crun(identity: str, document: dict[str, Any]) -> Found:
    pid, started = first_process.KEYS["status"]
    found = Found(identity, _pid(document, pid))
    found.started = _ticks(document, started)
    found.root_path = _path(document.get("rootfs"), "rootfs")
    found.bundle = _path(document.get("bundle"), "bundle")
    found.cgroup = _path(document.get("cgroup-path"), "cgroup-path")
    return found


def _cgroup(paths: object) -> str:
    """Return the name of the cgroup whose directories runc lists by controller; v2's key is ""."""
    if not isinstance(paths, dict):
        return ""
    for controller in ("devices", ""):
        mount, path = os.path.join(MOUNT_POINT, controller).rstrip("/"), paths.get(controller)
        if isinstance(path, str) and path.startswith(mount + "/"):
            return path[len(mount) :]
    return ""


def _pid(document: dict[str, Any], key: str) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise UnreadableError(f"{key} is not a pid")
    return value


def _ticks(document: dict[str, Any], key: str) -> int | None:
    """Return a start time; None for 0, which a runtime without the time writes."""
    value = document.get(key) or None
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise UnreadableError(f"{key} is not a number")
    return value


def _path(value: object, key: str) -> str:
    """Return the value of `key`, "" if it is not text; UnreadableError if it cannot be a path."""
    if not isinstance(value, str):
        return ""
    if not files.is_path(value):
        raise UnreadableError(f"{key} is not a path")
    return value


def _observed(found: Found, directory: int, mounted: list[Mount] | None) -> Found:
    """Set the status, as the kernel shows it, and the values of a container that has exited."""
    owner = found.owner
    try:
        with found.process() as process:
            if not found.is_ours and owner != _owner_of_user_namespace(process):
                raise UnreadableError(
                    f"user {owner} wrote it, but has not started process {found.pid}"
                )
            found.started = process.started
            found.status = status(process, mounted)
    except GpuhookError as error:
        if error.code == "GH1733":
            raise UnreadableError(error.message) from error
        found.pid, found.started, found.status = 0, None, STOPPED
    if found.status == RUNNING and _has(directory, "exec.fifo"):
        found.status = CREATED
    return found


def status(process: Process, mounted: list[Mount] | None = None) -> str:
    """Return RUNNING or PAUSED; `mounted` are the mounts of cgroups, if the caller has them."""
    return PAUSED if cgroup.is_frozen(process.read("cgroup"), mounted) else RUNNING


def _has(directory: int, name: str) -> bool:
    """Return whether the state directory has a file: exec.fifo exists until the start."""
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return False
    return True


def _owner_of_user_namespace(process: Process) -> int:
    """Return the user who created the process's user namespace (ioctl_ns(2)).

    A user's state directory can name any pid; only those of user namespaces that the user has
    created are accepted.
    """
    import fcntl

    fd = process.open("ns/user", os.O_RDONLY)
    try:
        return int.from_bytes(fcntl.ioctl(fd, _NS_GET_OWNER_UID, bytes(4)), sys.byteorder)
    finally:
        os.close(fd)
