# SPDX-License-Identifier: Apache-2.0
"""The CPU time and memory of another process, from /proc."""

from __future__ import annotations

import resource
import time
from pathlib import Path

_SCHEDULED = 2  # CPUCLOCK_SCHED, for the clock of a process: clock_getcpuclockid(3)


def resident(pid: int) -> float:
    """Return the resident memory in units of 1,000,000 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(pid)


def cpu(pid: int) -> float:
    """Return the CPU time so far in milliseconds, of all threads, those that ended included.

    The ticks of /proc/PID/stat have 10 ms, which is more than an idle process uses.
    """
    clock = (~pid << 3) | _SCHEDULED
    return time.clock_gettime_ns(clock) / 1e6


def of_children() -> float:
    """Return the milliseconds of processor time of all children of this process that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000
