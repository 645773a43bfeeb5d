# SPDX-License-Identifier: Apache-2.0
"""What a node accumulates while containers come and go: for tests that nothing grows."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from pathlib import Path

from gpuhook.kernel.libc import LIBC

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_CGROUPS = Path("/sys/fs/cgroup")
_SYS_BPF = {"x86_64": 321, "aarch64": 280}
_PROG_GET_NEXT_ID = 11


class Directory:
    """The files below a directory: their number, and their size in bytes."""

    def __init__(self, *places: Path) -> None:
        paths = [
            Path(top, name)
            for place in places
            for top, _, names in os.walk(place)
            for name in names
        ]
        self.files = len(paths)
        self.bytes = 0
        for path in paths:
            with suppress(OSError):
                self.bytes += path.lstat().st_size


def mounts() -> int:
    """Return the number of mounts in this mount namespace."""
    return len(Path("/proc/self/mountinfo").read_bytes().splitlines())


def cgroups(name: str) -> int:
    """Return the number of cgroups below those of this name, in all hierarchies."""
    tops = (_CGROUPS / name, *_CGROUPS.glob(f"*/{name}"))
    return sum(len(below) for top in tops for _, below, _ in os.walk(top))


def programs() -> int:
    """Return the number of BPF programs that the kernel has loaded, also those of others."""
    number = _SYS_BPF[os.uname().machine]
    attributes = (ctypes.c_uint32 * 4)()
    count = 0
    while LIBC.syscall(number, _PROG_GET_NEXT_ID, attributes, ctypes.sizeof(attributes)) == 0:
        attributes[0] = attributes[1]  # the next search begins after the id that was found
        count += 1
    return count


def zombies(parents: Iterable[int]) -> int:
    """Return the number of exited children that these processes have not waited for."""
    wanted, count = {str(pid) for pid in parents}, 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, *_ = path.read_text("utf-8", "replace").rpartition(") ")[2].split()
            count += state == "Z" and parent in wanted
    return count
