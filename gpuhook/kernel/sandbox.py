# SPDX-License-Identifier: Apache-2.0
"""A sandboxed process: its own namespaces, another root, few capabilities, bounded resources.

Constants from linux/sched.h, linux/prctl.h and linux/capability.h.
"""

from __future__ import annotations

import ctypes
import errno
import os

from gpuhook.kernel import mounts
from gpuhook.kernel.libc import LIBC, os_error

CAP_DAC_READ_SEARCH = 2
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWPID = 0x20000000
_CLONE_NEWNET = 0x40000000
_EVERY = _CLONE_NEWNS | _CLONE_NEWUTS | _CLONE_NEWIPC | _CLONE_NEWPID | _CLONE_NEWNET
_MS_REC = 16384
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_MOST_CAPABILITIES = 64
# asm-generic/resource.h
_RLIMIT_CPU, _RLIMIT_FSIZE, _RLIMIT_CORE, _RLIMIT_NOFILE, _RLIMIT_AS = 0, 1, 4, 7, 9
_NOT_MOUNTED = {errno.EINVAL: "the root of this mount namespace cannot be replaced"}

LIBC.pivot_root.argtypes = (ctypes.c_char_p, ctypes.c_char_p)


def enter_namespaces() -> None:
    """Enter new mount, uts, ipc and network namespaces; the next child is in a new pid namespace.

    No mount propagates out of the new mount namespace. Raises OSError.
    """
    if LIBC.unshare(_EVERY) != 0:
        raise os_error("new namespaces")
    mounts.mount("", "/", "", _MS_REC | mounts.MS_PRIVATE)


def change_root(tree_fd: int) -> None:
    """Make the detached mount behind `tree_fd` the root, and unmount the old one.

    For a process in its own mount namespace; the new root becomes its working directory. Raises
    OSError.
    """
    top = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    mounts.move_mount(tree_fd, top, "/")
    os.fchdir(tree_fd)
    # pivot_root(2): with "." twice, the old root ends up on top of the new one, and goes.
    if LIBC.pivot_root(b".", b".") == 0:
        mounts.umount2(".", mounts.MNT_DETACH)
    elif ctypes.get_errno() == errno.EINVAL:
        os.chroot(".")  # an initramfs has no parent mount; only our descriptors are left open
    else:
        raise os_error("/", _NOT_MOUNTED)
    os.chdir("/")


def keep_capabilities(kept: tuple[int, ...]) -> None:
    """Drop all capabilities but `kept` for every program that this process becomes.

    Raises OSError.
    """
    for number in range(_MOST_CAPABILITIES):
        if number in kept:
            continue
        if LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0) != 0:
            if ctypes.get_errno() == errno.EINVAL:
                break  # the kernel has no more of them
            raise os_error("capabilities")
    if LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise os_error("no_new_privs")


def bound(*, seconds: int, memory: int, file_size: int, descriptors: int) -> None:
    """Limit the resources of this process and of the program that it becomes; sizes are in bytes.

    Lower limits remain as they are.
    """
    for kind, most in (
        (_RLIMIT_CPU, seconds),
        (_RLIMIT_AS, memory),
        (_RLIMIT_FSIZE, file_size),
        (_RLIMIT_NOFILE, descriptors),
        (_RLIMIT_CORE, 0),
    ):
        limits = (ctypes.c_ulong * 2)(most, most)  # struct rlimit: soft, hard
        if LIBC.setrlimit(kind, limits) != 0 and ctypes.get_errno() != errno.EPERM:
            raise os_error("resource limits")
