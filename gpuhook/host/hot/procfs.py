# SPDX-License-Identifier: Apache-2.0
"""Processes as /proc shows them. Source: proc(5).

Functions that take `proc` read the procfs that is mounted there, as in a pod that has the host's.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SESSION = 3  # an index of stat_fields()
PARENT, START = 1, 19
ENDED = (b"Z", b"X", b"x")
_MAX_STAT = 65536  # bytes
_MAX_DEPTH = 64  # of nested pid namespaces and their processes
_MAX_CGROUP = 4096  # bytes: for a longer path, reading the file fails (proc_cgroup_show, PATH_MAX)


def pids(proc: str = "/proc") -> list[int]:
    """Return the pids of all processes that this process sees."""
    return [int(name) for name in os.listdir(proc) if name.isdecimal()]


def stat_fields(content: bytes) -> list[bytes]:
    """Return the fields of a /proc/PID/stat from the third, the state, on.

    They start after the last closing parenthesis: a command name may contain any character.
    """
    return content.rpartition(b")")[2].split()


def start_ticks(content: bytes) -> int | None:
    """Return the start time in a /proc/PID/stat, in clock ticks since boot.

    None for a zombie, and for a content that is not of the kernel.
    """
    fields = stat_fields(content)
    is_whole = len(fields) > START and fields[START].isdigit()
    return int(fields[START]) if is_whole and fields[0] not in ENDED else None


def start_time(pid: int, proc: str = "/proc") -> int | None:
    """Return when process `pid` started, in clock ticks since boot; None if it does not run."""
    try:
        return start_ticks(files.read(f"{proc}/{int(pid)}/stat", _MAX_STAT))
    except (OSError, GpuhookError):
        return None


def parent(pid: int, proc: str = "/proc") -> int:
    """Return the pid of the parent of a process, 0 if this process sees no parent."""
    fields = process_stat(pid, proc) or []
    is_whole = len(fields) > PARENT and fields[PARENT].isdigit()
    return int(fields[PARENT]) if is_whole else 0


def process_stat(pid: int, proc: str = "/proc") -> list[bytes] | None:
    """Return stat_fields() of process `pid`, None if it does not exist."""
    try:
        return stat_fields(files.read(f"{proc}/{pid}/stat", _MAX_STAT))
    except (OSError, GpuhookError):
        return None


def parents(pid: int, proc: str = "/proc") -> Iterator[int]:
    """Yield the parent of a process, the parent of that process, and so on; not process 1."""
    for _ in range(_MAX_DEPTH):
        pid = parent(pid, proc)
        if pid <= 1:
            return
        yield pid


def cgroups(content: bytes) -> list[tuple[bytes, list[bytes], bytes]]:
    """Return (hierarchy number, controllers, path) of each line of a /proc/PID/cgroup.

    cgroup v2 has the number 0 and no controller. A line with a path that the kernel cannot show is
    left out. Source: cgroups(7).
    """
    found = []
    for line in content.split(b"\n"):
        number, _, rest = line.partition(b":")
        controllers, colon, path = rest.partition(b":")
        if colon and len(path) <= _MAX_CGROUP:
            found.append((number, controllers.split(b",") if controllers else [], path))
    return found
