# SPDX-License-Identifier: Apache-2.0
"""Descriptors of a container's mount namespace and of its root directory."""

from __future__ import annotations

import os

from gpuhook.apply.rootfs.safe_walk import mount_id
from gpuhook.errors import fault
from gpuhook.kernel.namespaces import mount_namespace_view

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.containers.warm.process_handle import Process


def open_root(process: Process, place: str) -> tuple[int, int, int]:
    """Return descriptors of the mount namespace, of its mountinfo and of the container's root.

    `place` is the path of the root in the view of `process`. Raises GH1733 without permission, and
    GH1747 if `place` is "/" and the process has another root directory than its mount namespace.
    """
    opened = [process.open("ns/mnt", os.O_RDONLY)]
    try:
        if place == "/":
            return opened[0], *_view(process, opened[0])
        opened.append(process.open("mountinfo", os.O_RDONLY))
        root = _below(process.open("root", os.O_PATH | os.O_DIRECTORY), place)
        return opened[0], opened[1], root
    except BaseException:
        for fd in opened:
            os.close(fd)
        raise


def _view(process: Process, namespace: int) -> tuple[int, int]:
    """Return descriptors of the mountinfo and of the root directory of a mount namespace.

    Raises GH1747 if `process`, which is in it, has another root directory: the container chooses
    that one, such as a volume of the host that it may only read.
    """
    user = process.open("ns/user", os.O_RDONLY)
    try:
        table, root = mount_namespace_view(namespace, user)
    except PermissionError as error:
        path, reason = f"/proc/{process.pid}/ns/mnt", error.strerror
        raise fault("GH1733", path=path, reason=reason) from error
    finally:
        os.close(user)
    try:
        _require_root_of(process, root)
    except BaseException:
        os.close(table)
        os.close(root)
        raise
    return table, root


def _require_root_of(process: Process, root: int) -> None:
    own = process.open("root", os.O_PATH | os.O_DIRECTORY)
    try:
        is_same = _identity(own) == _identity(root)
    finally:
        os.close(own)
    if not is_same:
        raise fault("GH1747", pid=process.pid)


def _identity(fd: int) -> tuple[int, int, int]:
    found = os.fstat(fd)
    return mount_id(fd), found.st_dev, found.st_ino


def _below(fd: int, place: str) -> int:
    """Return a descriptor of the directory `place` in the tree behind `fd`, which is closed."""
    # Links are resolved here: an absolute one below `fd` would lead into our own tree.
    path = os.path.realpath(place).lstrip("/") or "."
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
    finally:
        os.close(fd)
