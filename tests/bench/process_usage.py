# SPDX-License-Identifier: Apache-2.0
"""The CPU time and memory of another process, from /proc."""

from __future__ import annotations

from pathlib import Path


def resident(pid: int) -> float:
    """Return the resident memory in units of 1,000,000 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ProcessLookupError(pid)


def cpu(pid: int) -> float:
    """Return the CPU time so far in milliseconds, of all threads, with nanosecond resolution.

    The ticks of /proc/PID/stat have 10 ms, which is more than an idle process uses.
    """
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e6
