# SPDX-License-Identifier: Apache-2.0
"""This process: its name, its memory, its end. Sources: proc(5), prctl(2), mallopt(3).

Signals by name match the first argument in /proc/PID/cmdline (pkill -f, the config-manager of
NVIDIA's plugin) or the thread's name (pkill, killall). The arguments are memory of the process, at
an address that /proc/PID/stat shows, so the name is written there: with an exec under another name,
Python would lose the directory it was started from, and with it a virtual environment.
"""

from __future__ import annotations

import ctypes
import os

from gpuhook.errors import fault
from gpuhook.host.hot import procfs
from gpuhook.kernel.libc import LIBC, os_error

_PR_SET_PDEATHSIG = 1
_SIGKILL = 9
_M_ARENA_MAX = -8


def die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent, process `parent`, ends; raises OSError."""
    if LIBC.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0) != 0:
        raise os_error("PR_SET_PDEATHSIG")
    if os.getppid() != parent:  # it has exited before the call
        os.kill(os.getpid(), _SIGKILL)


_ARG_START, _ARG_END = 48, 49  # fields of /proc/<pid>/stat, proc(5)


def limit_arenas() -> None:
    """Let all threads allocate from one arena, where the C library has several.

    glibc has up to eight for each core, and each keeps what its threads have freed.
    """
    if hasattr(LIBC, "mallopt"):
        LIBC.mallopt(_M_ARENA_MAX, 1)


def rename(name: str) -> None:
    """Set the name of this process to `name`; the arguments after the first are no longer visible.

    Raises GH1806 if the name is too long, or if the kernel does not show the address.
    """
    start, end = _arguments()
    encoded = name.encode()
    most = max(end - start - 1, 0)  # the last byte remains a NUL, or the kernel reads on
    if start == 0 or not encoded or len(encoded) > most or b"\0" in encoded:
        reason = "its arguments are hidden" if start == 0 else f"a name has 1 to {most} bytes here"
        raise fault("GH1806", name=name, reason=reason, most=most)
    ctypes.memmove(start, encoded.ljust(end - start, b"\0"), end - start)
    set_comm(encoded)


def set_comm(name: bytes) -> None:
    """Set the name of this process that the kernel shows; it has up to 15 bytes. Raises OSError."""
    with open("/proc/self/comm", "wb") as file:
        file.write(name[:15])


def _arguments() -> tuple[int, int]:
    """Return the addresses where the arguments begin and end, 0 if they are hidden."""
    with open("/proc/self/stat", "rb") as file:
        fields = procfs.stat_fields(file.read())
    return int(fields[_ARG_START - 3]), int(fields[_ARG_END - 3])
