# SPDX-License-Identifier: Apache-2.0
"""The machine's cgroups of version 2: mounted at /sys/fs/cgroup or below it."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_SECONDS = 10


def mounted() -> Path:
    """Return the directory of the highest cgroup that this process can see."""
    for line in Path("/proc/self/mountinfo").read_text("utf-8").splitlines():
        mount, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(mount.split()[4])
    message = "no cgroup2 is mounted"
    raise RuntimeError(message)


def inode(directory: Path) -> int | None:
    """Return the inode of a cgroup's directory, which identifies it; None if it was removed."""
    try:
        return directory.stat().st_ino
    except OSError:
        return None


def of_process(pid: int) -> list[int]:
    """Return the inodes of the process's cgroup and of its ancestors; empty if it has exited."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text("utf-8").splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return []
    name = next((line[3:] for line in lines if line.startswith("0::")), "/")
    path = mounted() / name.lstrip("/")
    above = [path, *path.parents][: len(Path(name).parts)]
    return [number for number in map(inode, above) if number is not None]


@contextmanager
def made(name: str = "gpuhook-tests-memory") -> Iterator[Path]:
    """Yield a new cgroup; then kill its processes, and remove it with its descendants.

    Further cgroups may be made below it with mkdir, and removed with ended().
    """
    path = mounted() / f"{name}-{uuid4().hex[:12]}"
    path.mkdir()
    try:
        yield path
    finally:
        ended(path)


def ended(path: Path) -> None:
    """Kill all processes of the cgroup and its descendants, and remove it."""
    (path / "cgroup.kill").write_text("1", encoding="ascii")
    deadline = time.monotonic() + _SECONDS
    for directory, _below, _files in os.walk(path, topdown=False):
        while True:
            try:
                Path(directory).rmdir()
                break
            except OSError:  # a process is still exiting
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
