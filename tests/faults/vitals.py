# SPDX-License-Identifier: Apache-2.0
"""Resources of a process, from /proc: descriptors, threads, memory, CPU time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kubelet.process import PluginProcess
from tests.waiting import eventually

# A larger increase is a leak per fault; libraries keep a few.
FDS, THREADS, MIB = 12, 8, 16
# Clock ticks (10 ms) in an idle second: polls, and the NVML stub.
QUIET_TICKS = 25


@dataclass(frozen=True)
class Vitals:
    """The resources of one process at one time; `mib` is its resident memory."""

    pid: int
    fds: int
    threads: int
    mib: int


def read(pid: int) -> Vitals:
    """Return the resources of a process. Raises OSError if it has exited."""
    fds = len(os.listdir(f"/proc/{pid}/fd"))
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.partition(":")[::2] for line in lines)
    return Vitals(pid, fds, int(status["Threads"]), int(status["VmRSS"].split()[0]) // 1024)


def ticks(pid: int) -> int:
    """Return the CPU time of a process in clock ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def check(plugin: PluginProcess, before: Vitals) -> None:
    """Check that the process is that of `before`, uses no more resources, and is idle."""
    assert plugin.process is not None
    assert plugin.process.poll() is None
    assert plugin.pid == before.pid
    eventually(lambda: read(plugin.pid).fds <= before.fds + FDS, f"no more than {before}")
    eventually(lambda: read(plugin.pid).threads <= before.threads + THREADS, f"{before}")
    assert read(plugin.pid).mib <= before.mib + MIB
    first = ticks(plugin.pid)
    time.sleep(1)
    assert ticks(plugin.pid) - first <= QUIET_TICKS
