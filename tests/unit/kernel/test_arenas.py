# SPDX-License-Identifier: Apache-2.0
"""limit_arenas(): threads share the memory that the C library keeps."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Prints the number of threads' arenas: glibc reserves 64 MiB for each.
PROGRAM = """
import sys, threading
from gpuhook.kernel import process
if sys.argv[1] == "limited":
    process.limit_arenas()
go, ready = threading.Event(), threading.Barrier(9)
def work():
    held = [bytearray(4000) for _ in range(20)]
    ready.wait()
    go.wait()
threads = [threading.Thread(target=work) for _ in range(8)]
for one in threads: one.start()
ready.wait()
sizes = []
for line in open("/proc/self/maps"):
    start, _, end = line.split()[0].partition("-")
    if "---p" in line and len(line.split()) == 5:
        sizes.append(int(end, 16) - int(start, 16))
print(sum(32 << 20 < size <= 64 << 20 for size in sizes))
go.set()
"""


def _arenas(how: str) -> int:
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_threads_share_an_arena() -> None:
    if _arenas("") == 0:
        pytest.skip("this C library has no arenas of threads")
    assert _arenas("limited") == 0
