# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system whose daemon reads requests and does not answer them.

It answers INIT, and GETATTR of its root, so that it can be mounted: on a directory, or on a file,
which then blocks each process that opens it. A process with any other request waits, and SIGKILL
does not end that wait once the daemon has read the request.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.contract.build_cache import CHECKOUT
from tests.waiting import eventually

_CLONE_NEWNS = 0x00020000
_IN = struct.Struct("=IIQQIIII")  # struct fuse_in_header, linux/fuse.h
_OUT = struct.Struct("=IiQ")
_LOOKUP, _GETATTR, _INIT, _FORGET, _INTERRUPT, _BATCH = 1, 3, 26, 2, 36, 42
_ROOT = 1
_DIRECTORY, _FILE = 0o040755, 0o100444


@dataclass(frozen=True)
class Silent:
    """A mount of that file system, and the log of the requests that its daemon has read."""

    daemon: int
    log: Path

    @property
    def requests(self) -> list[int]:
        """Return the operations of the requests that it has read and not answered."""
        return [int(line) for line in self.log.read_text(encoding="utf-8").split()]

    def is_asked(self) -> bool:
        """Return whether a process waits for an answer."""
        return bool(self.requests)


@contextmanager
def silent(
    place: Path, path: str, pid: int | None = None, name: str = "fuse", late: float = 0
) -> Iterator[Silent]:
    """Mount it at `path`, in the mount namespace of process `pid` or in the current one.

    In the end the daemon ends, and with it each wait for an answer. `place` is for its log. With
    `late`, it answers after so many seconds that there is no such file.
    """
    device = Path("/dev/fuse")
    if not device.exists():
        subprocess.run(["mknod", str(device), "c", "10", "229"], check=True)
    log = place / f"{name}.log"
    command = [sys.executable, "-m", "tests.contract.fuse", path, str(log), str(pid or 0)]
    command.append(str(late))
    daemon = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    try:
        assert daemon.stdout.readline() == b"mounted\n"
        yield Silent(daemon.pid, log)
    finally:
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()
        if pid is None:
            subprocess.run(["umount", "--lazy", path], check=True)


def waiting(pid: int) -> bool:
    """Return whether a process, or one of its threads, is in an uninterruptible wait."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "D"
    except FileNotFoundError:
        return False


def wait_for_end(pid: int) -> None:
    """Wait until a process has exited."""
    eventually(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _serve(path: str, log: str, pid: int, late: float) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if pid:
        namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        if libc.setns(namespace, _CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    mode = _DIRECTORY if os.path.isdir(path) else _FILE
    options = f"fd={device},rootmode={mode & 0o170000:o},user_id=0,group_id=0,allow_other"
    if libc.mount(b"silent", path.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount", path)
    os.write(1, b"mounted\n")
    while True:
        request = os.read(device, 1 << 20)
        _, operation, unique, node, *_ = _IN.unpack_from(request)
        if operation == _INIT:
            major, minor, readahead, _ = struct.unpack_from("=IIII", request, _IN.size)
            body = struct.pack("=IIIIHHII", major, minor, readahead, 0, 12, 9, 1 << 16, 1)
            _answer(device, unique, body.ljust(64, b"\0"))
        elif operation == _GETATTR and node == _ROOT:
            times = struct.pack("=QQQIII", 0, 0, 0, 0, 0, 0)
            owner = struct.pack("=IIIIII", mode, 2, 0, 0, 0, 4096)
            attributes = struct.pack("=QQQ", _ROOT, 0, 0) + times + owner + struct.pack("=I", 0)
            _answer(device, unique, struct.pack("=QII", 3600, 0, 0) + attributes)
        elif operation not in (_FORGET, _INTERRUPT, _BATCH):
            os.write(out, b"%d\n" % operation)
            if late:
                time.sleep(late)
                os.write(device, _OUT.pack(_OUT.size, -errno.ENOENT, unique))


def _answer(device: int, unique: int, body: bytes) -> None:
    os.write(device, _OUT.pack(_OUT.size + len(body), 0, unique) + body)


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
