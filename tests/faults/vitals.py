# SPDX-License-Identifier: Apache-2.0
"""What a process has and does, from /proc: descriptors, threads, memory, processor time."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.kubelet.process import PluginProcess
from tests.waiting import eventually

# More than this is a leak of some for each fault; less is what libraries keep.
FDS, THREADS, MIB = 12, 8, 16
# Clock ticks (10 ms) of a second in which nothing happens: of polls, and the NVML stub's.
QUIET_TICKS = 25


@dataclass(frozen=True)
class Vitals:
    """One process at one moment; `mib` is its resident memory."""

    pid: int
    fds: int
    threads: int
    mib: int


def of(pid: int) -> Vitals:
    """Return the vitals of a process. Raises OSError for one that ended."""
    fds = len(os.listdir(f"/proc/{pid}/fd"))
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    status = dict(line.partition(":")[::2] for line in lines)
    return Vitals(pid, fds, int(status["Threads"]), int(status["VmRSS"].split()[0]) // 1024)


def ticks(pid: int) -> int:
    """Return the clock ticks of processor time that the process has had."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def check(plugin: PluginProcess, before: Vitals) -> None:
    """Check that the process is the one of `before`, holds no more than then, and rests."""
    assert plugin.process is not None
    assert plugin.process.poll() is None
    assert plugin.pid == before.pid
    eventually(lambda: of(plugin.pid).fds <= before.fds + FDS, f"no more than {before}")
    eventually(lambda: of(plugin.pid).threads <= before.threads + THREADS, f"{before}")
    assert of(plugin.pid).mib <= before.mib + MIB
    first = ticks(plugin.pid)
    time.sleep(1)
    assert ticks(plugin.pid) - first <= QUIET_TICKS
