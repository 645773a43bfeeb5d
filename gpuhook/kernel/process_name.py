# SPDX-License-Identifier: Apache-2.0
"""The name of this process: the first argument in /proc/<pid>/cmdline, and the name of its thread.

Signals by name look at the first argument (pkill -f, the config-manager of NVIDIA's plugin) or at
the thread's name (pkill, killall). The arguments are memory of the process itself, whose place
proc(5) tells, so they are written there: an exec under another name would lose Python the
directory it was started from, and with it a virtual environment.
"""

from __future__ import annotations

import ctypes

from gpuhook.errors import fault
from gpuhook.host.hot import procfs

_ARG_START, _ARG_END = 48, 49  # fields of /proc/<pid>/stat, proc(5)


def rename(name: str) -> None:
    """Call this process `name`; the arguments after the first are no longer shown.

    Raises GH1806 when there is no room for the name, or where the kernel does not tell the place.
    """
    start, end = _arguments()
    encoded = name.encode()
    room = max(end - start - 1, 0)  # the last byte stays a NUL, or the kernel reads on
    if start == 0 or not encoded or len(encoded) > room or b"\0" in encoded:
        reason = (
            "its arguments are not there" if start == 0 else f"a name has 1 to {room} bytes here"
        )
        raise fault("GH1806", name=name, reason=reason, most=room)
    ctypes.memmove(start, encoded.ljust(end - start, b"\0"), end - start)
    with open("/proc/self/comm", "wb") as file:
        file.write(encoded[:15])


def _arguments() -> tuple[int, int]:
    """Return the addresses where the arguments begin and end, 0 where they are not told."""
    with open("/proc/self/stat", "rb") as file:
        fields = procfs.stat_fields(file.read())
    return int(fields[_ARG_START - 3]), int(fields[_ARG_END - 3])
