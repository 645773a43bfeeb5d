# SPDX-License-Identifier: Apache-2.0
"""Timing of programs: cases take turns, so that a slow moment of the machine affects all."""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

# Moving a process into a cgroup waits for an RCU grace period, some 15 ms, unless another one was
# moved just before: back to back, a runtime that does nothing in between looks three times as fast
# as on a quiet node. So every run starts on a quiet machine.
PAUSE = 0.1


@dataclass
class Case:
    """A command to time: `around` prepares it, yields it, and cleans up after it, untimed."""

    name: str
    around: Callable[[], AbstractContextManager[Sequence[str]]]
    env: Mapping[str, str] = field(default_factory=dict)

    def once(self) -> float:
        """Return the milliseconds of one run; raises CalledProcessError if it failed."""
        with self.around() as command:
            time.sleep(PAUSE)
            return milliseconds(command, self.env)


def plain(name: str, command: Sequence[str], **env: str) -> Case:
    """Return a case without preparation."""
    return Case(name, lambda: nullcontext(command), env)


def milliseconds(command: Sequence[str], env: Mapping[str, str]) -> float:
    """Run `command` and return its wall time in milliseconds."""
    whole = {**os.environ, **env}
    with open(os.devnull, "r+b") as null, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        process = subprocess.Popen(command, env=whole, stdin=null, stdout=null, stderr=err)
        status = process.wait()
        took = (time.perf_counter() - start) * 1000
        if status != 0:
            err.seek(0)
            raise subprocess.CalledProcessError(status, command, stderr=err.read().decode())
    return took


def interleaved(cases: Sequence[Case], rounds: int) -> dict[str, float]:
    """Return the median milliseconds of each case over `rounds` rounds, one warm-up first."""
    times: dict[str, list[float]] = {case.name: [] for case in cases}
    for number in range(rounds + 1):
        for case in cases:
            took = case.once()
            if number:
                times[case.name].append(took)
    return {name: statistics.median(values) for name, values in times.items()}
