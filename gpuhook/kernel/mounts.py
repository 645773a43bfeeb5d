# SPDX-License-Identifier: Apache-2.0
"""mount(2), and the newer mount calls that work on descriptors.

Constants from linux/mount.h and linux/fcntl.h; the numbers of system calls that came after Linux
4.20 are the same on every architecture (asm-generic/unistd.h).
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct

from gpuhook.kernel.libc import LIBC, os_error, syscall

AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
AT_FDCWD = -100
MNT_DETACH = 2
MOUNT_ATTR_RDONLY = 1
MOUNT_ATTR_NOSUID = 2
MOUNT_ATTR_NODEV = 4
MOUNT_ATTR_NOEXEC = 8
MOUNT_ATTR_IDMAP = 1 << 20
MOVE_MOUNT_F_EMPTY_PATH = 0x4
MOVE_MOUNT_T_EMPTY_PATH = 0x40
MS_REMOUNT = 32
MS_BIND = 4096
MS_PRIVATE = 1 << 18
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
OPEN_TREE_CLONE = 1

_PROC_MAGIC = 0x9FA0  # linux/magic.h: PROC_SUPER_MAGIC
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_MOUNT_SETATTR = 442
# The attributes have the values of the MS_ and ST_ constants: one mask for all three.
_LOCKS = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC

_OLD_KERNEL = {errno.ENOSYS: "Linux 5.2 or newer is needed to move a mount into a namespace"}
_SETATTR = {
    errno.ENOSYS: "Linux 5.12 or newer is needed to change a mount by its descriptor",
    errno.EPERM: "not permitted: a user namespace locks the flags of mounts from outside it",
}
_UMOUNT = {
    errno.EINVAL: "nothing is mounted there, or a user namespace locks the mount",
    errno.EBUSY: "the mount is in use",
}

LIBC.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
)
LIBC.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
LIBC.fstatfs.argtypes = (ctypes.c_int, ctypes.c_char_p)


def mount(source: str, target: str, fstype: str, flags: int) -> None:
    """Mount `source` at `target`; raises OSError with the target."""
    arguments = (os.fsencode(source), os.fsencode(target), os.fsencode(fstype))
    if LIBC.mount(*arguments, flags, None) != 0:
        raise os_error(target)


def umount2(path: str, flags: int) -> None:
    """Unmount `path`; raises OSError with it."""
    if LIBC.umount2(os.fsencode(path), flags) != 0:
        raise os_error(path, _UMOUNT)


def open_tree(dir_fd: int, path: str, flags: int) -> int:
    """Return a descriptor of the mount at `path`, with OPEN_TREE_CLONE of a detached copy of it.

    Raises OSError with the path; ENOSYS before Linux 5.2.
    """
    return syscall(_SYS_OPEN_TREE, dir_fd, path, flags, path=path, reasons=_OLD_KERNEL)


def move_mount(tree_fd: int, target_fd: int, path: str) -> None:
    """Mount the detached tree on the file or directory behind `target_fd`.

    `path` only names the target in the OSError; ENOSYS before Linux 5.2.
    """
    flags = MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH
    arguments = (tree_fd, "", target_fd, "", flags)
    syscall(_SYS_MOVE_MOUNT, *arguments, path=path, reasons=_OLD_KERNEL)


def mount_setattr(
    fd: int,
    attr_set: int,
    attr_clr: int,
    propagation: int,
    *,
    user_namespace: int = 0,
    recursive: bool = False,
) -> None:
    """Change the attributes of the mount behind `fd`, and its propagation.

    `user_namespace` is a descriptor of the namespace by which MOUNT_ATTR_IDMAP maps owners. With
    `recursive`, the mounts below it change as well. Raises OSError; ENOSYS before Linux 5.12.
    """
    # struct mount_attr
    change = struct.pack("=4Q", attr_set, attr_clr, propagation, user_namespace)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    arguments = (fd, "", flags, change, len(change))
    syscall(_SYS_MOUNT_SETATTR, *arguments, path="", reasons=_SETATTR)


def clone(source: str, attr: int) -> int:
    """Return a descriptor of a detached bind mount of the file or directory `source`.

    Mounts below the source are not included. The mount has the attributes `attr` and gets no mounts
    from its peers; before Linux 5.12, attach() sets both. Raises OSError with the source; ENOSYS
    before Linux 5.2.
    """
    fd = open_tree(AT_FDCWD, source, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)
    try:
        mount_setattr(fd, attr, 0, MS_PRIVATE)
    except OSError as error:
        if error.errno != errno.ENOSYS:
            os.close(fd)
            error.filename = source
            raise
    return fd


def map_owners(tree_fd: int, user_namespace: int) -> None:
    """Map the owners of a clone's files into a user namespace, given by its descriptor.

    Raises OSError: EINVAL if the file system cannot do that, ENOSYS before Linux 5.12.
    """
    mount_setattr(tree_fd, MOUNT_ATTR_IDMAP, 0, 0, user_namespace=user_namespace)


def attach(
    tree_fd: int, target_fd: int, attr: int, path: str, descriptors: str = "/proc/self/fd"
) -> None:
    """Mount a clone on the file or directory behind `target_fd`, with the attributes `attr`.

    If the kernel could not change the detached clone, the mount is changed after it is attached,
    through `descriptors`: the directory with this process's descriptors, "." in the child of
    in_mount_namespace(). Raises OSError with `path`; then nothing is mounted.
    """
    move_mount(tree_fd, target_fd, path)
    held = os.fstatvfs(tree_fd).f_flag & _LOCKS
    place = f"{descriptors}/{tree_fd}"
    try:
        mount("", place, "", MS_PRIVATE)
        if attr & _LOCKS & ~held:
            mount("", place, "", MS_BIND | MS_REMOUNT | held | attr & _LOCKS)
    except OSError as error:
        umount2(place, MNT_DETACH)
        error.filename = path
        raise


def writable_clone(dir_fd: int) -> int:
    """Return a detached, writable bind mount of the directory behind `dir_fd`.

    For a root that is mounted read-only; a read-only file system remains so. Raises OSError: EPERM
    if a user namespace locks the flag, ENOSYS before Linux 5.12.
    """
    fd = open_tree(dir_fd, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH)
    try:
        mount_setattr(fd, 0, MOUNT_ATTR_RDONLY, MS_PRIVATE)
    except OSError:
        os.close(fd)
        raise
    return fd


def bind(source: str, target: str, attr: int, descriptors: str = "/proc/self/fd") -> None:
    """Bind the file or directory `source` over `target`, with the attributes `attr`.

    A new bind mount takes no other flags: they need a second call (mount(2), "Creating a bind
    mount"). `descriptors` is the directory with this process's descriptors. A link in place of the
    last component is not followed. Raises OSError with the target, ELOOP for a link; then nothing
    is mounted.
    """
    held = [_not_link(target)]
    try:
        mount(source, f"{descriptors}/{held[0]}", "", MS_BIND)
        held.append(_not_link(target))  # the mount over it
        place = f"{descriptors}/{held[1]}"
        try:
            mount("", place, "", MS_PRIVATE)
            mount("", place, "", MS_BIND | MS_REMOUNT | attr & _LOCKS)
        except OSError:
            umount2(place, MNT_DETACH)
            raise
    except OSError as error:
        error.filename = target
        raise
    finally:
        for fd in held:
            os.close(fd)


def _not_link(path: str) -> int:
    """Return a descriptor of `path`; ELOOP if it is a symbolic link, which mount(2) follows."""
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    if stat.S_ISLNK(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.ELOOP, "it is a symbolic link", path)
    return fd


def is_proc(fd: int) -> bool:
    """Return whether a descriptor is of procfs (statfs(2): f_type is the first word)."""
    buffer = ctypes.create_string_buffer(512)
    if LIBC.fstatfs(fd, buffer) != 0:
        return False
    size = ctypes.sizeof(ctypes.c_long)
    return int.from_bytes(buffer.raw[:size], "little") == _PROC_MAGIC


def bind_read_only(source: str, target: str) -> None:
    """Bind the file `source` over `target`, read-only, nosuid, nodev, noexec; raises OSError."""
    bind(source, target, _LOCKS)
