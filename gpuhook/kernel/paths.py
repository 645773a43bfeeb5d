# SPDX-License-Identifier: Apache-2.0
"""openat2(2): opening a path inside a root that somebody hostile is changing meanwhile.

WARM. Constants from linux/openat2.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from gpuhook.kernel.libc import LIBC, os_error

_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_IN_ROOT = 0x10

_SYS_OPENAT2 = 437
_TRIES = 32
_REASONS = {
    errno.ENOSYS: "Linux 5.6 or newer is needed to open a path safely inside a container",
    errno.ELOOP: "symbolic links lead round in a circle, or through /proc",
    errno.EXDEV: "the path leads out of where it has to stay",
    errno.EAGAIN: "the path was being changed at every try",
}


# The arguments' types said once: who looks at containers opens thousands of paths.
_syscall = ctypes.CFUNCTYPE(
    ctypes.c_long,
    ctypes.c_long,
    ctypes.c_int,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_size_t,
    use_errno=True,
)(("syscall", LIBC))


def openat2(root: int, path: str, flags: int) -> int:
    """Return a descriptor of `path` in the root behind `root`, which nothing leads out of.

    The descriptor is not inherited by other programs. Raises OSError with the path: EAGAIN where
    renames on the way kept the kernel from being sure (openat2(2)), ENOSYS before Linux 5.6.
    """
    resolve = _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, resolve)  # struct open_how
    name = os.fsencode(path)
    for _ in range(_TRIES):
        fd: int = _syscall(_SYS_OPENAT2, root, name, how, len(how))
        if fd >= 0:
            return fd
        if ctypes.get_errno() != errno.EAGAIN:
            break
    raise os_error(path, _REASONS)
