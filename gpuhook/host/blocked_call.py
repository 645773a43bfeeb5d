# SPDX-License-Identifier: Apache-2.0
"""The file for which a thread waits in the kernel.

/proc/PID/task/TID/syscall has the number and the arguments of a thread's system call; of a thread
that runs, it has the word `running`. Sources: proc(5), and the kernel's tables of system calls.
"""

from __future__ import annotations

import os
from contextlib import suppress

_BY_DESCRIPTOR, _BY_PATH, _AT_PATH = range(3)
# Number -> how the first arguments name the file: as a descriptor, a path, or a directory's
# descriptor and a path.
_X86_64 = {
    **dict.fromkeys((0, 5, 16, 17, 19, 72, 217), _BY_DESCRIPTOR),  # read, fstat, ioctl, ...
    **dict.fromkeys((2, 4, 6, 21, 89), _BY_PATH),  # open, stat, lstat, access, readlink
    **dict.fromkeys((257, 262, 267, 269, 332, 437, 439), _AT_PATH),  # openat, newfstatat, ...
}
_AARCH64 = {
    **dict.fromkeys((25, 29, 61, 63, 65, 67, 80), _BY_DESCRIPTOR),
    **dict.fromkeys((48, 56, 78, 79, 291, 437, 439), _AT_PATH),
}
_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}
_LONGEST = 4096


def blocking_path(pid: int, tid: int = 0) -> str:
    """Return the path of the file for which a thread of a process waits, "" if it is unknown.

    `tid` 0 is the first thread. Only a process that may trace it can read this.
    """
    place = f"/proc/{pid}"
    with suppress(OSError, ValueError, IndexError):
        with open(f"{place}/task/{tid or pid}/syscall", encoding="ascii") as file:
            number, *arguments = file.read().split()
        how = _CALLS.get(os.uname().machine, {}).get(int(number))
        values = [int(word, 16) for word in arguments]
        if how == _BY_DESCRIPTOR:
            return os.readlink(f"{place}/fd/{values[0]}")
        if how is not None:
            return _text(f"{place}/mem", values[how - _BY_PATH])
    return ""


def _text(memory: str, address: int) -> str:
    """Return the path at an address, which ends with a zero byte."""
    descriptor = os.open(memory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = bytearray()
        # A read that reaches an unmapped page fails as a whole: no read crosses a page's end.
        while len(found) < _LONGEST and b"\0" not in found:
            here = address + len(found)
            found += os.pread(descriptor, min(256, 4096 - here % 4096), here)
    finally:
        os.close(descriptor)
    return os.fsdecode(bytes(found).partition(b"\0")[0])
