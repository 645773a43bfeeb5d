# SPDX-License-Identifier: Apache-2.0
"""mknod(2): device nodes in a directory that a container may be changing meanwhile."""

from __future__ import annotations

import ctypes
import errno
import os
import stat

from gpuhook.kernel.libc import LIBC, os_error
from gpuhook.kernel.mounts import AT_EMPTY_PATH

_KINDS = {"c": stat.S_IFCHR, "b": stat.S_IFBLK}
_REASONS = {errno.EPERM: "not permitted to create device nodes here, as in a user namespace"}

LIBC.fchownat.argtypes = (
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_uint,
    ctypes.c_uint,
    ctypes.c_int,
)


def mknod(  # noqa: PLR0917  # the order of mknod(1), and the owner
    dir_fd: int, name: str, kind: str, major: int, minor: int, mode: int, uid: int, gid: int
) -> None:
    """Make the device node `name` in the directory behind `dir_fd`: "c" or "b", and its owner.

    The mode is exact, whatever the umask. Raises OSError with the name: EEXIST if the name exists,
    EPERM in a user namespace; then there is no node.
    """
    old = os.umask(0)
    try:
        os.mknod(name, _KINDS[kind] | mode, os.makedev(major, minor), dir_fd=dir_fd)
    except OSError as error:
        reason = _REASONS.get(error.errno or 0) or error.strerror
        raise OSError(error.errno, reason, name) from error
    finally:
        os.umask(old)
    try:
        _own(dir_fd, name, os.makedev(major, minor), uid, gid)
    except OSError:
        os.unlink(name, dir_fd=dir_fd)
        raise


def _own(dir_fd: int, name: str, device: int, uid: int, gid: int) -> None:
    """Set the node's owner through a descriptor: the name may be another file by now."""
    fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        found = os.fstat(fd)
        if found.st_rdev != device:
            raise OSError(errno.ESTALE, "another process replaced it in the meantime", name)
        if (found.st_uid, found.st_gid) == (uid, gid):
            return
        if LIBC.fchownat(fd, b"", uid, gid, AT_EMPTY_PATH) != 0:
            raise os_error(name)
    finally:
        os.close(fd)
