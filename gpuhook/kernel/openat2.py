# SPDX-License-Identifier: Apache-2.0
"""openat2(2): opening a path inside a root that somebody hostile is changing meanwhile.

Constants from linux/openat2.h. Kernels before Linux 5.6 do not have it, and seccomp filters that
are older than it refuse it: there it is done step by step (openat2_fallback.py), and
never by a plain open.
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
    errno.ELOOP: "symbolic links lead round in a circle, or through /proc",
    errno.EXDEV: "the path leads out of where it has to stay",
    errno.EAGAIN: "the path was being changed at every try",
}
# Of a kernel without the call; of Docker's and libseccomp's filters of before 2020.
_IS_MISSING = (errno.ENOSYS, errno.EPERM)

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
    renames on the way kept the kernel from being sure (openat2(2)).
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
    if ctypes.get_errno() in _IS_MISSING:
        return _walked(root, path, flags)
    raise os_error(path, _REASONS)


def _walked(root: int, path: str, flags: int) -> int:
    from gpuhook.kernel import openat2_fallback  # few kernels need it

    try:
        return openat2_fallback.opened(root, path, flags)
    except OSError as error:
        error.strerror = _REASONS.get(error.errno or 0, error.strerror)
        raise
