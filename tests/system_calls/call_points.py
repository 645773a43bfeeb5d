# SPDX-License-Identifier: Apache-2.0
"""Every system call of a command is a point where it can be killed, or where the call can fail.

A first run under strace lists the calls; each further run has one fault, at one of them. strace
counts the calls of each name in each process: a point is "the Nth call of this name", in the first
process that comes to it, and in later ones as well.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.contract.runtimes import Result

KILL = "signal=KILL"
# What a full disk, a bad disk, a read-only mount, no memory, no descriptors and a signal give: each
# error, and the calls that the kernel returns it from. close(2) frees its descriptor whatever it
# returns, which an injected error would not.
_FILES = """open openat mkdir mkdirat mknod mknodat rename renameat renameat2 link linkat symlink
 symlinkat unlink unlinkat rmdir write pwrite64 fsync fdatasync ftruncate fchmod chmod fchmodat
 fchown chown fchownat"""
_READS = (
    "read pread64 newfstatat stat lstat fstat statx getdents64 readlink readlinkat access lseek"
)
_MEMORY = "mmap clone clone3 fork vfork execve pipe2 socket memfd_create inotify_init1 bpf mount"
ERRORS = {
    "ENOSPC": frozenset(f"{_FILES} inotify_add_watch".split()),
    "EIO": frozenset(f"{_FILES} {_READS} openat2".split()),
    "EROFS": frozenset(_FILES.split()) - {"write", "pwrite64", "fsync", "fdatasync"},
    "ENOMEM": frozenset(f"{_FILES} {_READS} {_MEMORY} openat2".split()),
    "EMFILE": frozenset(
        [
            "open",
            "openat",
            "openat2",
            "pipe2",
            "dup",
            "dup2",
            "socket",
            "memfd_create",
            "epoll_create1",
            "inotify_init1",
        ]
    ),
    "EINTR": frozenset(
        [
            "open",
            "openat",
            "openat2",
            "read",
            "write",
            "flock",
            "wait4",
            "waitid",
            "poll",
            "ppoll",
            "select",
            "pselect6",
            "accept4",
            "connect",
            "recvmsg",
            "sendmsg",
        ]
    ),
    "EAGAIN": frozenset(["clone", "clone3", "fork", "vfork", "flock", "socket"]),
}
# Calls that change what other processes, or the next run, can see.
CHANGES = frozenset(
    [
        "mkdir",
        "mkdirat",
        "mknod",
        "mknodat",
        "rename",
        "renameat",
        "renameat2",
        "link",
        "linkat",
        "symlink",
        "symlinkat",
        "unlink",
        "unlinkat",
        "rmdir",
        "write",
        "pwrite64",
        "fsync",
        "fdatasync",
        "ftruncate",
        "fchmod",
        "chmod",
        "fchmodat",
        "chown",
        "fchown",
        "fchownat",
        "lchown",
        "setxattr",
        "fsetxattr",
        "mount",
        "umount2",
        "move_mount",
        "bpf",
        "flock",
        "utimensat",
    ]
)
_LINE = re.compile(r"^(\d+) +([a-z_0-9]+)\((.*)")
SECONDS = 600


@dataclass(frozen=True)
class Point:
    """A system call of a command: the Nth of its name in its process."""

    call: str
    when: int
    program: str  # that the process runs: the file's name
    text: str  # the call, as strace shows it

    @property
    def is_change(self) -> bool:
        """Return whether the call may change a file, a mount or a lock."""
        if self.call in ("openat", "open"):
            return "O_CREAT" in self.text
        if self.call == "write":  # not into a pipe or a device
            return "</" in self.text and "</dev/" not in self.text.partition(",")[0]
        return self.call in CHANGES

    def __str__(self) -> str:
        return f"{self.program}: {self.call} {self.when}: {self.text[:120]}"


def points(
    command: Sequence[str | Path], env: Mapping[str, str], place: Path, stdin: str = ""
) -> list[Point]:
    """Run a command, which must succeed, and return its system calls."""
    trace = place / "calls"
    done = _run(["strace", "-f", "-y", "-qq", "-o", str(trace), *map(str, command)], env, stdin)
    assert done.rc == 0, done
    return parsed(trace)


def parsed(trace: Path) -> list[Point]:
    """Return the points of a trace that strace has written, in their order."""
    return _points(trace.read_text("utf-8", "replace").splitlines())


def _points(lines: Iterable[str]) -> list[Point]:
    counts: Counter[tuple[str, str]] = Counter()
    programs: dict[str, str] = {}
    found: dict[tuple[str, int], Point] = {}
    for line in lines:
        match = _LINE.match(line)
        if match is None:
            continue
        pid, call, text = match.groups()
        counts[pid, call] += 1
        if call == "execve" and "= -1" not in text:
            programs[pid] = os.path.basename(text.split('"')[1])
        point = Point(call, counts[pid, call], programs.get(pid, ""), text)
        known = found.get((call, point.when))
        if known is None or (point.is_change and not known.is_change):
            found[call, point.when] = point
    return list(found.values())


def errors(found: Iterable[Point]) -> list[tuple[Point, str]]:
    """Return each point with each error that its call can have."""
    return [
        (point, error) for point in found for error, calls in ERRORS.items() if point.call in calls
    ]


def injection(fault: str, point: Point) -> list[str]:
    """Return the strace command for a fault ("signal=KILL", "error=EIO") at a system call."""
    # Of strace 6.1, --seccomp-bpf injects errors and no signals.
    fast = ["--seccomp-bpf"] if fault.startswith("error") else []
    words = ["strace", "-f", "-qq", *fast, "-o", os.devnull]
    return [
        *words,
        "-e",
        f"trace={point.call}",
        "-e",
        f"inject={point.call}:{fault}:when={point.when}",
    ]


def run_with(
    fault: str,
    point: Point,
    command: Sequence[str | Path],
    env: Mapping[str, str],
    stdin: str = "",
) -> Result:
    """Run a command with a fault ("signal=KILL", "error=EIO") at one of its system calls."""
    return _run([*injection(fault, point), *map(str, command)], env, stdin)


def _run(command: Sequence[str], env: Mapping[str, str], stdin: str) -> Result:
    done = subprocess.run(
        command,
        input=stdin.encode(),
        capture_output=True,
        env=dict(env),
        timeout=SECONDS,
        check=False,
    )
    out, err = (one.decode("utf-8", "replace") for one in (done.stdout, done.stderr))
    return Result(done.returncode, out, err)
