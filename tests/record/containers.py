# SPDX-License-Identifier: Apache-2.0
"""A process that plays a container's init: in a new mount namespace, with another root."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
from pathlib import Path

_NEWNS, _BIND, _REC, _DETACH = 0x20000, 0x1000, 0x4000, 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def start(root: str) -> int:
    """Return the pid of a process whose root file system is `root`; it ends with this process."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _enter(root)
            os.write(done, b"1")
            signal.pause()
        finally:
            os._exit(1)
    os.close(done)
    assert os.read(ready, 1), "the container's process ended"
    os.close(ready)
    return child


def view(pid: int) -> str:
    """Return the nodes and the mounts in a process's namespace."""
    lines = []
    for path in sorted(Path(f"/proc/{pid}/root/dev").rglob("*")):
        status = path.lstat()
        if stat.S_ISCHR(status.st_mode):
            number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
            name = path.relative_to(f"/proc/{pid}/root")
            lines.append(f"/{name} {number} {stat.S_IMODE(status.st_mode):04o}\n")
    for line in Path(f"/proc/{pid}/mountinfo").read_text("utf-8").splitlines():
        _, _, _, root, place, options, *_ = line.split()
        lines.append(f"{place} {options} {root}\n")
    return "".join(lines)


def _enter(root: str) -> None:
    _LIBC.prctl(_PDEATHSIG, signal.SIGKILL)
    _called(_LIBC.unshare(_NEWNS))
    place = root.encode()
    _called(_LIBC.mount(place, place, None, _BIND | _REC, None))
    for name in ("dev", "proc"):
        path = f"{root}/{name}".encode()
        kind = b"tmpfs" if name == "dev" else b"proc"
        _called(_LIBC.mount(kind, path, kind, 0, None))
    Path(root, "old").mkdir(exist_ok=True)
    os.chdir(root)
    _called(_LIBC.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"old"))
    os.chdir("/")
    _called(_LIBC.umount2(b"/old", _DETACH))
    Path("/old").rmdir()


def _called(result: int) -> None:
    assert result == 0, os.strerror(ctypes.get_errno())
