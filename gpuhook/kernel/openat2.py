# SPDX-License-Identifier: Apache-2.0
"""openat2(2): opening a path inside a root that a hostile process is changing meanwhile.

Constants from linux/openat2.h. Kernels before Linux 5.6 do not have the call, and older seccomp
filters refuse it: there the path is walked step by step (openat2_fallback.py), never opened with a
plain open.
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
    errno.ELOOP: "symbolic links form a loop, or lead through /proc",
    errno.EXDEV: "the path leads outside its root",
    errno.EAGAIN: "the path changed at every attempt",
}
# Of a kernel without the call; of Docker's and libseccomp's filters of before 2020.
_IS_MISSING = (errno.ENOSYS, errno.EPERM)

# The types of the arguments are declared once: commands open thousands of paths.
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
    """Return a descriptor of `path` inside the root behind `root`; no link leads out of it.

    Other programs do not inherit the descriptor. Raises OSError with the path: EAGAIN if concurrent
    renames prevented a safe lookup (openat2(2)).
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
