# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system: a cgroup v2 hierarchy in which each cgroup has the files of dmem as well.

Everything else is that of the directory below: a mounted hierarchy, or a directory of a test. Each
write to a file of dmem is one request, as in the kernel. Source: linux/fuse.h.

    with mounted(tmp_path, cgroups.mounted()) as controller:
        controller.facts.write({"drm/0000:05:00.0/vram": 16 << 30})
        (controller.path / "pod/dmem.max").read_text()
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.simulated.dmem_controller import DmemController, DmemFacts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHECKOUT = Path(__file__).parents[2]
_IN = struct.Struct("=IIQQIIII")  # fuse_in_header
_OUT = struct.Struct("=IiQ")
_LOOKUP, _GETATTR, _SETATTR, _MKDIR, _RMDIR, _OPEN, _READ, _WRITE = 1, 3, 4, 9, 11, 14, 15, 16
_RELEASE, _FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _ACCESS = 18, 25, 26, 27, 28, 29, 34
_UNANSWERED = (2, 36, 42)  # FORGET, INTERRUPT, BATCH_FORGET
_DIRECT_IO = 1
_ROOT = 1
_OWN = "dmem."


@dataclass(frozen=True)
class DmemMount:
    """The mount at `path`, and the facts of its controller."""

    path: Path
    facts: DmemFacts


@contextmanager
def mounted(place: Path, below: Path, **facts: object) -> Iterator[DmemMount]:
    """Mount the hierarchy of the directory `below` in `place`; `facts` are DmemFacts.write()'s."""
    device = Path("/dev/fuse")
    if not device.exists():
        subprocess.run(["mknod", str(device), "c", "10", "229"], check=True)
    made = DmemMount(place / "dmem-cgroups", DmemFacts(place / "dmem.json"))
    made.path.mkdir()
    made.facts.write(**facts)  # type: ignore[arg-type]
    paths = (str(below), str(made.path), str(made.facts.path))
    command = [sys.executable, "-m", "tests.simulated.dmem_mount", *paths]
    daemon = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE)
    assert daemon.stdout is not None
    try:
        assert daemon.stdout.readline() == b"mounted\n"
        yield made
    finally:
        subprocess.run(["umount", "--lazy", str(made.path)], check=True)
        daemon.kill()
        daemon.wait()
        daemon.stdout.close()


class _Server:
    """Answers requests. A node is a path below the hierarchy's root, "/" for the root itself."""

    def __init__(self, below: str, controller: DmemController) -> None:
        self._below = below
        self._controller = controller
        self._paths = {_ROOT: "/"}
        self._nodes = {"/": _ROOT}
        self.operations: dict[int, Callable[[int, bytes], bytes]] = {
            _INIT: self._init,
            _LOOKUP: self._lookup,
            _GETATTR: lambda node, _: struct.pack("=QII", 0, 0, 0) + self._attributes(node),
            _SETATTR: lambda node, _: struct.pack("=QII", 0, 0, 0) + self._attributes(node),
            _MKDIR: self._mkdir,
            _RMDIR: self._rmdir,
            _OPEN: lambda _, __: struct.pack("=QII", 0, _DIRECT_IO, 0),
            _OPENDIR: lambda _, __: struct.pack("=QII", 0, 0, 0),
            _READ: self._read,
            _WRITE: self._write,
            _READDIR: self._readdir,
            _ACCESS: lambda _, __: b"",
            _FLUSH: lambda _, __: b"",
            _RELEASE: lambda _, __: b"",
            _RELEASEDIR: lambda _, __: b"",
        }

    def _init(self, _node: int, body: bytes) -> bytes:
        major, minor, readahead, _ = struct.unpack_from("=IIII", body)
        answer = struct.pack("=IIIIHHII", major, minor, readahead, 0, 12, 9, 1 << 16, 1)
        return answer.ljust(64, b"\0")

    def _lookup(self, node: int, body: bytes) -> bytes:
        return self._entry(os.path.join(self._paths[node], body.rstrip(b"\0").decode()))

    def _entry(self, path: str) -> bytes:
        if path not in self._nodes:
            number = len(self._paths) + 1
            self._nodes[path], self._paths[number] = number, path
        node = self._nodes[path]
        return struct.pack("=QQQQII", node, 0, 0, 0, 0, 0) + self._attributes(node)

    def _attributes(self, node: int) -> bytes:
        path = self._paths[node]
        own = self._own(path)
        if own is None:
            found = os.lstat(self._below + path)
            mode, links = found.st_mode, found.st_nlink
        else:
            mode, links = stat.S_IFREG | 0o644, 1
        return struct.pack("=QQQQQQIIIIIIIIII", node, *[0] * 8, mode, links, 0, 0, 0, 4096, 0)

    def _own(self, path: str) -> tuple[str, str] | None:
        """Return cgroup and name of a file of dmem, None for another path. Raises OSError."""
        cgroup, name = os.path.split(path)
        if not name.startswith(_OWN):
            return None
        if not os.path.isdir(self._below + cgroup) or name not in self._controller.files(cgroup):
            raise FileNotFoundError(errno.ENOENT, path)
        return cgroup, name

    def _mkdir(self, node: int, body: bytes) -> bytes:
        path = os.path.join(self._paths[node], body[8:].rstrip(b"\0").decode())
        os.mkdir(self._below + path)
        return self._entry(path)

    def _rmdir(self, node: int, body: bytes) -> bytes:
        path = os.path.join(self._paths[node], body.rstrip(b"\0").decode())
        os.rmdir(self._below + path)
        self._controller.remove(path)
        return b""

    def _read(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        path = self._paths[node]
        own = self._own(path)
        if own is not None:
            return self._controller.show(*own).encode()[offset : offset + size]
        with open(self._below + path, "rb") as file:
            content = file.read()
        cgroup, name = os.path.split(path)
        if name == "cgroup.controllers":
            content = _listed(content, self._controller.has_controller() and self._enables(cgroup))
        elif name == "cgroup.subtree_control":
            content = _listed(content, self._controller.passes_on(cgroup))
        return content[offset : offset + size]

    def _enables(self, cgroup: str) -> bool:
        return bool(self._controller.files(cgroup))

    def _write(self, node: int, body: bytes) -> bytes:
        _, _, size = struct.unpack_from("=QQI", body)
        data, path = body[40 : 40 + size], self._paths[node]
        own = self._own(path)
        if own is not None:
            self._controller.store(*own, data.decode())
        else:
            with open(self._below + path, "r+b", buffering=0) as file:
                file.write(data)
        return struct.pack("=II", size, 0)

    def _readdir(self, node: int, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("=QQI", body)
        path = self._paths[node]
        names = [one for one in os.listdir(self._below + path) if not one.startswith(_OWN)]
        entries = sorted([*names, *self._controller.files(path)])
        answer = b""
        for place, name in enumerate(entries[offset:], offset + 1):
            is_directory = os.path.isdir(self._below + os.path.join(path, name))
            kind = stat.S_IFDIR if is_directory else stat.S_IFREG
            text = name.encode()
            entry = struct.pack("=QQII", place + 1, place, len(text), kind >> 12) + text
            entry = entry.ljust(-(-len(entry) // 8) * 8, b"\0")
            if len(answer) + len(entry) > size:
                break
            answer += entry
        return answer


def _listed(content: bytes, is_on: bool) -> bytes:
    words = [word for word in content.split() if word != b"dmem"] + [b"dmem"] * is_on
    return b" ".join(words) + b"\n"


def _serve(below: str, path: str, facts: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other"
    if libc.mount(b"dmem", path.encode(), b"fuse", 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), "mount", path)
    os.write(1, b"mounted\n")
    server = _Server(below.rstrip("/"), DmemController(DmemFacts(Path(facts))))
    while True:
        try:
            request = os.read(device, 1 << 20)
        except OSError as error:
            if error.errno == errno.ENODEV:  # unmounted
                return
            raise
        _, operation, unique, node, *_ = _IN.unpack_from(request)
        if operation in _UNANSWERED:
            continue
        code, body = 0, b""
        try:
            body = server.operations[operation](node, request[_IN.size :])
        except KeyError:
            code = errno.ENOSYS
        except OSError as error:
            code = error.errno or errno.EIO
        os.write(device, _OUT.pack(_OUT.size + len(body), -code, unique) + body)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
