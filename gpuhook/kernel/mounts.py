# SPDX-License-Identifier: Apache-2.0
"""mount(2) and what is made of it.

WARM. Constants from linux/mount.h.
"""

from __future__ import annotations

import ctypes
import os

from gpuhook.kernel.libc import LIBC, os_error

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096

LIBC.mount.argtypes = (
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_ulong,
    ctypes.c_void_p,
)


def mount(source: str, target: str, fstype: str, flags: int) -> None:
    """Mount `source` at `target`; raises OSError with the target."""
    arguments = (os.fsencode(source), os.fsencode(target), os.fsencode(fstype))
    if LIBC.mount(*arguments, flags, None) != 0:
        raise os_error(target)


def bind_read_only(source: str, target: str) -> None:
    """Bind the file `source` over `target`, read-only, nosuid, nodev, noexec; raises OSError.

    A bind takes no other flags at first: they need a second call (mount(2), "Creating a bind
    mount").
    """
    mount(source, target, "", MS_BIND)
    flags = MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("", target, "", MS_BIND | MS_REMOUNT | flags)
