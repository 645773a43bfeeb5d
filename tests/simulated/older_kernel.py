# SPDX-License-Identifier: Apache-2.0
"""A program on a kernel without a system call, or behind a filter that refuses it.

    python -m tests.simulated.older_kernel NUMBER ERRNO PROGRAM [ARGUMENT]...

A seccomp filter costs nothing, and applies to all children of the program. Constants are from
linux/prctl.h, linux/seccomp.h and linux/filter.h.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys

OPENAT2 = 437
_NO_NEW_PRIVS, _SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06  # BPF_LD|W|ABS, BPF_JMP|JEQ|K, BPF_RET|K
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


def refuse(number: int, error: int) -> None:
    """Make a system call return `error` from now on, in this process and its children."""
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (_LOAD, 0, 0, 0),  # seccomp_data.nr
            (_EQUAL, 0, 1, number),
            (_RETURN, 0, 0, _ERRNO | error),
            (_RETURN, 0, 0, _ALLOW),
        )
    )
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))  # struct sock_fprog
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    pointer = ctypes.create_string_buffer(program, len(program))
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        _SECCOMP, _FILTER, ctypes.addressof(pointer), 0, 0
    ):
        raise OSError(ctypes.get_errno(), "the filter is refused")


if __name__ == "__main__":
    refuse(int(sys.argv[1]), int(sys.argv[2]))
    os.execvp(sys.argv[3], sys.argv[3:])  # what the caller names
