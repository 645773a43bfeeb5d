# SPDX-License-Identifier: Apache-2.0
"""The loader's files of a root file system: the cache, and what a later ldconfig makes it from.

HOT. What the loader finds is what the image's own ldconfig would make of the same directories, and
still is after an ldconfig in the container. So each entry has the path by which that ldconfig
searches its directory, and directories of the system keep their place in its order. Where the image
has a library of the driver's names itself, the driver's comes first all the same: links in FRONT,
which hold nothing else, lead to it.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.loader import cache, conf, directory, musl, narrow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    Pair = tuple[bytes, bytes]  # the name and the path of a cache entry
    Index = Callable[[list[bytes], list[bytes]], bytes]

    class Tree(Protocol):
        """A root file system that can be provided: the real one, or a rehearsal of it."""

        def is_link(self, path: str) -> bool: ...
        def link(self, target: str, path: str) -> bool: ...
        def names(self, path: str) -> list[str]: ...
        def open_file(self, path: str) -> int | None: ...
        def read(self, path: str, limit: int) -> bytes | None: ...
        def real(self, path: str) -> str: ...
        def write(self, path: str, data: bytes) -> bool: ...


CACHE = "/etc/ld.so.cache"
FRONT = "/usr/lib/gpuhook"
MAX_CACHE = 16 << 20
_MAX_ARCHITECTURES = 8  # an image may name as many as it likes
_FRONT = os.fsencode(FRONT)


def paths() -> list[str]:
    """Return the container paths that `write` may write."""
    return [CACHE, conf.MAIN, conf.FIRST, conf.LAST, FRONT]


def write(
    root: Tree,
    entries: list[Pair],
    preferred: list[Pair],
    files: dict[bytes, bytes],
    index: Index | None,
) -> None:
    """Write the cache and ldconfig's configuration, musl's path file if the image has musl.

    `entries` are the driver's, `preferred` those of the image that come before them, `files` the
    library behind the path of an entry. `index`, called with the directories to search first and
    last, makes the cache of the image's own libraries, if it is not to be taken as it is. Raises
    OSError, GH1602, GH1604.
    """
    entries = [entry for entry in entries if _directory(entry) != _FRONT]
    names = root.names("/lib")
    architectures = musl.architectures(names)[:_MAX_ARCHITECTURES]
    if architectures:
        dirs = [where for where in _directories([*preferred, *entries]) if not _is_narrow(where)]
        for architecture in architectures:
            path = musl.path_file(architecture)
            root.write(path, musl.merged(root.read(path, musl.MAX_BYTES), dirs))
        if not _has_glibc(root, names):
            return
    _Glibc(root, entries, preferred, files).write(index)


class _Glibc:
    """The files of glibc's loader, and what they are made from."""

    def __init__(
        self, root: Tree, entries: list[Pair], preferred: list[Pair], files: dict[bytes, bytes]
    ) -> None:
        machine = os.uname().machine
        self._root = root
        self._entries = entries
        self._preferred = preferred
        self._files = files
        self._machine = machine
        self._flags = cache.flags_for(machine)
        self._text = root.read(conf.FIRST, conf.MAX_BYTES) or b""
        self._recorded = frozenset(conf.recorded(self._text))
        self._spelling: dict[bytes, bytes] = {}
        dirs = _directories(entries)
        self._system = [where for where in dirs if _is_system(where)]
        self._own = [where for where in dirs if not _is_system(where)]

    def write(self, index: Index | None) -> None:
        """Write them. A cache of the image that cannot be read is replaced by one of ours alone.

        The loader would have ignored it: it finds the image's libraries in its default directories.
        """
        data = self._data() if index is None else index(self._first(), self._system)
        try:
            texts = self._texts(cache.Cache(data, self._flags), index)
        except GpuhookError:
            texts = self._texts(cache.Cache(None, self._flags), index)
        for path, text in texts:
            self._root.write(path, text)

    def _texts(self, held: cache.Cache, index: Index | None) -> list[tuple[str, bytes]]:
        """Make the links in FRONT, and return the content of each file."""
        self._spelling = {}
        last = self._search(held)
        front: list[Pair] = []
        behind: list[Pair] = []
        if index is None and not held.is_empty():
            front = self._of_image(self._own)
            behind = self._of_image(last)
        links = self._linked(held, has_entries=index is not None)
        spelled = [(name, self._spelled(path)) for name, path in self._entries]
        front = list(dict.fromkeys([*self._preferred, *links, *front, *spelled]))
        dirs = [where for where in _directories(front) if not _is_system(where)]
        main = self._root.read(conf.MAIN, conf.MAX_BYTES) or b""
        # Without the drop-ins a later ldconfig in the container would drop the driver again.
        return [
            (CACHE, self._merged(held, front, behind)),
            (conf.FIRST, conf.first(dirs, last, [*front, *behind])),
            *([(conf.LAST, conf.last(last))] if last or conf.has_last(self._text) else []),
            (conf.MAIN, conf.main(main, with_last=bool(last))),
        ]

    def _data(self) -> bytes | None:
        try:
            return self._root.read(CACHE, MAX_CACHE)
        except GpuhookError:
            return None

    def _first(self) -> list[bytes]:
        return [*_directories(self._preferred), *self._own]

    def _search(self, held: cache.Cache) -> list[bytes]:
        """Return the directories of the system that the image's ldconfig does not search.

        Of the others it may have another path: /lib where /usr is merged.
        """
        last = []
        for where in self._system:
            other = where[4:] if where.startswith(b"/usr/") else b"/usr" + where
            if conf.names_last(self._text, where):
                last.append(where)
            elif not held.has_directory(where):
                if held.has_directory(other) and self._is_same(where, other):
                    self._spelling[where] = other
                else:
                    last.append(where)
        return last

    def _is_same(self, one: bytes, other: bytes) -> bool:
        return self._root.real(os.fsdecode(one)) == self._root.real(os.fsdecode(other))

    def _spelled(self, path: bytes) -> bytes:
        where, _, name = path.rpartition(b"/")
        return self._spelling[where] + b"/" + name if where in self._spelling else path

    def _of_image(self, dirs: list[bytes]) -> list[Pair]:
        """Return the entries of the image's own libraries in directories that we announce.

        A directory with more of them than are read has none before the image's next ldconfig.
        """
        found: list[Pair] = []
        for where in dirs:
            names = self._root.names(os.fsdecode(where))
            if names:
                from gpuhook.container import image_libraries  # few images have any

                paths = (*self._files, *self._files.values())
                ours = {os.fsdecode(path.rpartition(b"/")[2]) for path in paths}
                made = image_libraries.entries(self._root, os.fsdecode(where), names, ours)
                found += [(os.fsencode(name), os.fsencode(path)) for name, path in made]
        return found

    def _linked(self, held: cache.Cache, *, has_entries: bool) -> list[Pair]:
        """Link the libraries into FRONT of which the image has one itself; return their entries.

        Such an entry is one that no earlier start made (`has_entries`: nor has just made).
        """
        known = {path for _, path in self._recorded}
        known.update(path for _, path in self._preferred)
        if has_entries:
            known.update(self._spelled(path) for _, path in self._entries)
        wide = [entry for entry in self._entries if not _is_narrow(_directory(entry))]
        there = held.paths([name for name, _ in wide])
        links = []
        for name, path in wide:
            link = _FRONT + b"/" + name
            if (name, link) in self._recorded or not known.issuperset(there.get(name, ())):
                target = self._files.get(path, path)
                self._root.link(os.fsdecode(target), os.fsdecode(link))
                links.append((name, link))
        return links

    def _merged(self, held: cache.Cache, front: list[Pair], behind: list[Pair]) -> bytes:
        stale = self._recorded.difference(front, behind)
        narrows = {entry for entry in front if _is_narrow(_directory(entry))}
        merged = held.merged([pair for pair in front if pair not in narrows], stale, behind)
        if narrows:
            add = [pair for pair in front if pair in narrows]
            merged = cache.merged(merged, add, flags=cache.flags_for(narrow.MACHINE))
        return merged


def _directory(entry: Pair) -> bytes:
    return entry[1].rpartition(b"/")[0]


def _directories(entries: Iterable[Pair]) -> list[bytes]:
    return list(dict.fromkeys([_directory(entry) for entry in entries]))


def _is_system(where: bytes) -> bool:
    return directory.is_system(os.fsdecode(where))


def _is_narrow(where: bytes) -> bool:
    return narrow.is_narrow(os.fsdecode(where) + "/")


def _has_glibc(root: Tree, lib_names: list[str]) -> bool:
    return any(name.startswith("ld-linux") for name in [*lib_names, *root.names("/lib64")])
