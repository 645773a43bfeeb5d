# SPDX-License-Identifier: Apache-2.0
"""The root file system of a container with its mounts, as createContainer hooks see it.

config.json lists the mounts, and a later mount may be over an earlier one: the current mounts
determine the file that the hook writes.
"""

from __future__ import annotations

import os

from gpuhook.apply.rootfs.root_directory import Root
from gpuhook.apply.rootfs.safe_walk import Walk, mount_id
from gpuhook.containers.warm import host_mounts
from gpuhook.errors import fault
from gpuhook.host.hot import fastjson
from gpuhook.kernel import mountinfo
from gpuhook.vendors.hot.rootfs_jobs import root_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.containers.warm.process_handle import Process
    from gpuhook.entry.hooks.oci_state import HookState

PROC, TMPFS = "proc", host_mounts.TMPFS


class HookRoot(Root):
    """The root of the container of a hook; its own tmpfs mounts are part of it."""

    def __init__(self, state: HookState) -> None:
        super().__init__(root_path(state.bundle, state.spec))
        self._mountinfo = b""
        self._tables: list[bytes] | None = None
        for mount in fastjson.objects(state.spec, "mounts"):
            if mount.get("type") == TMPFS:
                self.admit(str(mount.get("destination")), TMPFS)

    def __enter__(self) -> HookRoot:  # noqa: PYI034 # Self needs a newer Python
        return self

    def admit(self, path: str, fstype: str) -> None:
        """Let walks enter the container's own file system of this type at the directory `path`.

        They enter no other mount there, and no tmpfs of the host.
        """
        try:
            fd = Walk(self._fd, None, create=False).to(path)
        except OSError:
            return
        try:
            number = mount_id(fd)
            if number not in self._mounts and self._is_own(number, fstype):
                self._mounts[number] = os.fstat(fd).st_dev
        finally:
            os.close(fd)

    def _is_own(self, number: int, fstype: str) -> bool:
        if not self._mountinfo:
            self._mountinfo = host_mounts.table("self")
        mount = mountinfo.find(self._mountinfo, number)
        if mount is None or mount.fstype != fstype or mount.root != "/":
            return False
        # A mount that a process of the host sees, too, is not the container's own.
        device = b" %s " % mount.device.encode()
        return fstype != TMPFS or not any(device in table for table in self._host_tables())

    def _host_tables(self) -> list[bytes]:
        if self._tables is None:
            # os.getpid() is the pid in the container's namespace; /proc is still the host's.
            self._tables = host_mounts.tables(int(os.readlink("/proc/self")), 1)
        return self._tables


def require_container(process: Process, state: HookState) -> None:
    """Raise GH1642 if a process does not belong to the container of a state."""
    ours = os.stat("/proc/self/ns/mnt")
    if process.namespace("mnt") == (ours.st_dev, ours.st_ino):
        reason = "it is in the host's mount namespace"
    elif _has_entered(process) and _has_another_root(process, state):
        reason = f"its root is not the root of {state.bundle}"
    else:
        return
    raise fault(
        "GH1642", reason=f"its pid {process.pid} does not belong to this container: {reason}"
    )


def _root_of(process: Process) -> tuple[int, int]:
    found = os.stat("root/", dir_fd=process.fd)
    return found.st_dev, found.st_ino


def _has_entered(process: Process) -> bool:
    """Return whether the process has the container's root: until then it has the host's."""
    host = os.stat("/")
    return _root_of(process) != (host.st_dev, host.st_ino)


def _has_another_root(process: Process, state: HookState) -> bool:
    """Return whether the root that a process has entered is certainly not this bundle's.

    It is not certain if the runtime mounts something over the root, or if the root is gone.
    """
    mounts = fastjson.objects(state.spec, "mounts")
    if any(not str(mount.get("destination")).strip("/.") for mount in mounts):
        return False
    try:
        expected = os.stat(root_path(state.bundle, state.spec))
    except OSError:
        return False
    return _root_of(process) != (expected.st_dev, expected.st_ino)


def place_of_root(process: Process, state: HookState) -> str:
    """Return the path of the container's root in its init's view."""
    return "/" if _has_entered(process) else root_path(state.bundle, state.spec)
