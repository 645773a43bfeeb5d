# SPDX-License-Identifier: Apache-2.0
"""The loader's files of a container, replayed from an earlier container of the same image.

The files depend on the container's libraries and on what is read of its root file system. The first
start records both, and the files. A later start reads the same again: if every answer is equal, it
writes the recorded files, and the modules that make them are not loaded. A difference, or another
installation of gpuhook, makes the files and the record again.

A record is a checksum and, marshalled, (inputs, [(method, arguments, answer)], [(path, content)]).
There are at most _SLOTS of them in the state directory.
"""

from __future__ import annotations

import marshal
import os
from binascii import crc32

from gpuhook import __version__, loader
from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, state
from gpuhook.loader.loader_paths import CACHE, MAX_CACHE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    from gpuhook.apply.rootfs.loader_files import Tree

    T = TypeVar("T")
    Record = tuple[bytes, list[tuple[str, tuple[Any, ...], Any]], list[tuple[str, bytes]]]

_SLOTS = 32
_MAX_BYTES = 256 << 10  # of a record: two caches of an image with a thousand libraries
_SUM = 4  # bytes
_VALUES = 2  # the version of marshal in which equal values have equal bytes


def replay(root: Tree, inputs: tuple[Any, ...]) -> Recording | None:
    """Write the recorded files for `inputs` and `root`, and return None.

    Without a record, return the root file system in which the caller makes them, to be kept.
    """
    try:
        cache = root.read(CACHE, MAX_CACHE)
        installed = _installed()
    except (GpuhookError, OSError):
        return Recording(root)
    if cache and len(cache) > _MAX_BYTES:
        return Recording(root, cache)  # its record would be larger
    key = marshal.dumps((__version__, installed, os.uname().machine, inputs), _VALUES)
    path = _path(crc32(cache or b"", crc32(key)) % _SLOTS)
    record = _record(path, key)
    if record is None or not _is_same(root, record, cache):
        return Recording(root, cache, path, key)
    for file, content in record[2]:
        root.write(file, content)
    return None


def _installed() -> int:
    """Return the time of the installation. Two builds of one release may make other files."""
    return os.stat(loader.__path__[0]).st_ctime_ns


def _path(slot: int) -> str:
    return os.path.join(state.directory(), "loader", f"{slot:02}")


def _record(path: str, key: bytes) -> Record | None:
    data = state.read(path, _MAX_BYTES)
    # marshal may reserve any amount of memory for damaged data.
    if not data or data[:_SUM] != _checksum(data[_SUM:]):
        return None
    record: Record = marshal.loads(data[_SUM:])  # noqa: S302 # root's own file
    return record if record[0] == key else None


def _checksum(data: bytes) -> bytes:
    return crc32(data, _SUM).to_bytes(_SUM, "little")  # zeros have another sum


def _is_same(root: Tree, record: Record, cache: bytes | None) -> bool:
    """Return whether everything that was read for a record is the same in `root`."""
    try:
        for method, arguments, answer in record[1]:
            is_cache = method == "read" and arguments[0] == CACHE
            if answer != (cache if is_cache else getattr(root, method)(*arguments)):
                return False
    except (GpuhookError, OSError):
        return False
    return True


def _store(path: str, record: Record) -> None:
    data = marshal.dumps(record, _VALUES)
    if _SUM + len(data) > _MAX_BYTES:
        return
    directory = os.path.dirname(path)
    try:
        if not os.path.isdir(directory):
            os.makedirs(directory, 0o755, exist_ok=True)  # it loads Python's os
        files.replace(path, _checksum(data) + data, mode=0o600)
    except OSError:
        pass  # with an unwritable /run, every create makes the files


class Recording:
    """A root file system whose reads and writes are recorded, to be kept at `path`, "" for never.

    It is no longer whole with the first operation that a record cannot have.
    """

    __slots__ = ("_cache", "_is_whole", "_key", "_path", "_reads", "_root", "_writes")

    def __init__(
        self, root: Tree, cache: bytes | None = None, path: str = "", key: bytes = b""
    ) -> None:
        self._root = root
        self._cache = cache
        self._path = path
        self._key = key
        self._is_whole = bool(path)
        self._reads: list[tuple[str, tuple[Any, ...], Any]] = []
        self._writes: list[tuple[str, bytes]] = []

    def keep(self) -> None:
        """Store the record for later containers."""
        if self._is_whole:
            _store(self._path, (self._key, self._reads, self._writes))

    def names(self, path: str) -> list[str]:
        return self._noted("names", (path,), self._root.names(path))

    def real(self, path: str) -> str:
        return self._noted("real", (path,), self._root.real(path))

    def read(self, path: str, limit: int) -> bytes | None:
        is_known = path == CACHE and self._cache is not None
        found = self._cache if is_known else self._root.read(path, limit)
        return self._noted("read", (path, limit), found)

    def write(self, path: str, data: bytes) -> bool:
        self._writes.append((path, data))
        return self._root.write(path, data)

    def is_link(self, path: str) -> bool:
        self._is_whole = False
        return self._root.is_link(path)

    def link(self, target: str, path: str) -> bool:
        self._is_whole = False
        return self._root.link(target, path)

    def open_file(self, path: str) -> int | None:
        self._is_whole = False
        return self._root.open_file(path)

    def _noted(self, method: str, arguments: tuple[Any, ...], answer: T) -> T:
        self._is_whole = self._is_whole and not self._writes  # a replay reads first
        self._reads.append((method, arguments, answer))
        return answer
