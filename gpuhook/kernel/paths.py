# SPDX-License-Identifier: Apache-2.0
"""openat2(2): opening a path inside a root that somebody hostile is changing meanwhile.

WARM. Constants from linux/openat2.h.
"""

from __future__ import annotations

import errno
import os
import struct

from gpuhook.kernel.libc import syscall

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


def openat2(root: int, path: str, flags: int) -> int:
    """Return a descriptor of `path` in the root behind `root`, which nothing leads out of.

    The descriptor is not inherited by other programs. Raises OSError with the path: EAGAIN where
    renames on the way kept the kernel from being sure (openat2(2)), ENOSYS before Linux 5.6.
    """
    resolve = _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS
    how = struct.pack("=3Q", flags | os.O_CLOEXEC, 0, resolve)  # struct open_how
    arguments = (root, path, how, len(how))
    for _ in range(_TRIES - 1):
        try:
            return syscall(_SYS_OPENAT2, *arguments, path=path, reasons=_REASONS)
        except OSError as error:
            if error.errno != errno.EAGAIN:
                raise
    return syscall(_SYS_OPENAT2, *arguments, path=path, reasons=_REASONS)
