# SPDX-License-Identifier: Apache-2.0
"""The loader's files of a root file system: the cache, and the configuration of a later ldconfig.

The loader finds what the image's own ldconfig would find in the same directories, also after an
ldconfig in the container. So each entry has the path by which that ldconfig searches its directory,
and directories of the system keep their place in its order. If the image itself has a library with
a name of the driver's, the driver's still comes first: links in FRONT, a directory with nothing
else, lead to it.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache, ld_so_conf, library_directory
from gpuhook.loader.loader_paths import CACHE, FIRST, FRONT, LAST, MAIN, MAX_CACHE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    Pair = tuple[bytes, bytes]  # the name and the path of a cache entry
    Index = Callable[[list[bytes], list[bytes]], bytes]

    class Tree(Protocol):
        """A root file system that gets files: the real one, or one of a dry run."""

        def is_link(self, path: str) -> bool: ...
        def link(self, target: str, path: str) -> bool: ...
        def names(self, path: str) -> list[str]: ...
        def open_file(self, path: str) -> int | None: ...
        def read(self, path: str, limit: int) -> bytes | None: ...
        def real(self, path: str) -> str: ...
        def write(self, path: str, data: bytes) -> bool: ...


_MAX_ARCHITECTURES = 8  # an image may name any number
_FRONT = os.fsencode(FRONT)


def write(
    root: Tree,
    entries: list[Pair],
    preferred: list[Pair],
    files: Callable[[], dict[bytes, bytes]],
    index: Index | None,
) -> None:
    """Write the cache and ldconfig's configuration; musl's path file if the image has musl.

    `entries` are the driver's, `preferred` those of the image that come before them, `files`
    returns the library of the path of an entry. `index`, called with the directories to search
    first and last, makes the cache of the image's own libraries, if its own cache is not used.
    Raises OSError, GH1602, GH1604.
    """
    # Those in FRONT were recorded by an earlier start; they are made again.
    entries = [entry for entry in entries if not entry[1].startswith(_FRONT + b"/")]
    names = root.names("/lib")
    if any(name.startswith("ld-musl-") for name in names):
        _write_musl(root, names, _directories([*preferred, *entries]))
        if not any(name.startswith("ld-linux") for name in [*names, *root.names("/lib64")]):
            return
    _Glibc(root, entries, preferred, files).write(index)


def _write_musl(root: Tree, names: list[str], dirs: list[bytes]) -> None:
    from gpuhook.loader import musl_path  # most images have glibc

    wide = [where for where in dirs if not _is_narrow(where)]
    for architecture in musl_path.architectures(names)[:_MAX_ARCHITECTURES]:
        path = musl_path.path_file(architecture)
        root.write(path, musl_path.merged(root.read(path, musl_path.MAX_BYTES), wide))


class _Glibc:
    """The files of glibc's loader, and their sources."""

    def __init__(
        self,
        root: Tree,
        entries: list[Pair],
        preferred: list[Pair],
        files: Callable[[], dict[bytes, bytes]],
    ) -> None:
        self._root = root
        self._preferred = preferred
        self._files = files
        self._flags = ld_cache.flags_for(os.uname().machine)
        self._text = root.read(FIRST, ld_so_conf.MAX_BYTES) or b""
        self._recorded = frozenset(ld_so_conf.recorded(self._text, of_image=True))
        dirs = _directories(entries)
        self._entries = entries
        self._system = [where for where in dirs if library_directory.is_system(os.fsdecode(where))]
        self._own = [where for where in dirs if where not in self._system]
        self._has_narrow = any(map(_is_narrow, dirs))

    def write(self, index: Index | None) -> None:
        """Write them. An unreadable cache of the image is replaced by one of gpuhook's entries.

        The loader would have ignored it: it finds the image's libraries in its default directories.
        """
        data = self._data() if index is None else index(self._first(), self._system)
        try:
            held = ld_cache.Cache(data, self._flags, was_merged=bool(self._recorded))
            # Only the image's own cache shows what its ldconfig searches by itself.
            searched = held if index is None else ld_cache.Cache(self._data(), self._flags)
            texts = self._texts(held, searched)
        except GpuhookError:
            held = ld_cache.Cache(None, self._flags)
            texts = self._texts(held, held)
        for path, text in texts:
            self._root.write(path, text)

    def _data(self) -> bytes | None:
        try:
            return self._root.read(CACHE, MAX_CACHE)
        except GpuhookError:
            return None

    def _first(self) -> list[bytes]:
        return [*_directories(self._preferred), *self._own]

    def _texts(self, held: ld_cache.Cache, searched: ld_cache.Cache) -> list[tuple[str, bytes]]:
        """Make the links in FRONT, and return the content of each file.

        `searched` is the image's cache. `held` is that one, or one of an ldconfig that has already
        searched the driver's directories.
        """
        is_indexed = held is not searched
        spelling, last = self._search(searched)
        image: list[Pair] = []
        behind: list[Pair] = []
        if not is_indexed and not held.is_empty():
            image = self._of_image(self._own)
            behind = self._of_image(last)
        spelled = self._entries
        if spelling:
            cuts = ((name, path.rpartition(b"/")) for name, path in spelled)
            spelled = [(n, spelling.get(cut[0], cut[0]) + b"/" + cut[2]) for n, cut in cuts]
        links = self._link_front(held, spelled, is_indexed=is_indexed)
        driver = list(dict.fromkeys([*self._preferred, *links, *spelled]))
        front = list(dict.fromkeys([*self._preferred, *links, *image, *spelled]))
        dirs = [*_directories(self._preferred), *([_FRONT] if links else []), *self._own]
        main = self._root.read(MAIN, ld_so_conf.MAX_BYTES) or b""
        # Without the drop-ins a later ldconfig in the container would drop the driver again. The
        # first one records the driver's entries: without it, those that a killed create has left in
        # the cache would count as the image's.
        texts = [
            (FIRST, ld_so_conf.first(dirs, last, driver, [*image, *behind])),
            (CACHE, self._merged(held, front, behind)),
            (MAIN, ld_so_conf.main(main, with_last=bool(last))),
        ]
        if last or ld_so_conf.has_last(self._text):
            texts.append((LAST, ld_so_conf.last(last)))
        return texts

    def _search(self, held: ld_cache.Cache) -> tuple[dict[bytes, bytes], list[bytes]]:
        """Return (other paths of system directories, those that the image's ldconfig skips).

        Its ldconfig uses the other path if the image merges /lib with /usr/lib.
        """
        spelling: dict[bytes, bytes] = {}
        last = []
        for where in self._system:
            other = library_directory.other_spelling(where)
            if ld_so_conf.names_last(self._text, where):
                last.append(where)
            elif not held.has_directory(where):
                if held.has_directory(other) and self._is_same(where, other):
                    spelling[where] = other
                else:
                    last.append(where)
        return spelling, last

    def _is_same(self, one: bytes, other: bytes) -> bool:
        path = os.fsdecode(one)
        real = self._root.real(os.fsdecode(other))
        return real in (path, self._root.real(path))

    def _of_image(self, dirs: list[bytes]) -> list[Pair]:
        """Return the entries of the image's own libraries in directories that gpuhook announces."""
        found: list[Pair] = []
        for where in dirs:
            names = self._root.names(os.fsdecode(where))
            libraries = {name for name in names if library_directory.is_library(name)}
            # A container that starts again has the driver's links there.
            if libraries and not libraries.issubset(ours := self._driver_names()):
                from gpuhook.loader import image_libraries  # few images have any

                found += image_libraries.entries_of_image(self._root, where, names, ours)
        return found

    def _driver_names(self) -> set[str]:
        """Return the names of the driver's libraries, and of the links to them."""
        files = self._files()
        return {os.fsdecode(path.rpartition(b"/")[2]) for path in (*files, *files.values())}

    def _link_front(
        self, held: ld_cache.Cache, spelled: list[Pair], *, is_indexed: bool
    ) -> list[Pair]:
        """Link the libraries into FRONT that the image has, too; return their entries.

        Entries of the cache from an earlier start are ignored (and, if `is_indexed`, new ones).
        """
        there = held.paths([name for name, _ in spelled])
        if not (there or self._recorded):
            return []
        known = {path for _, path in (*self._recorded, *self._preferred)}
        known.update([path for _, path in spelled] if is_indexed else ())
        files = self._files()
        links = []
        for (name, path), (_, shown) in zip(self._entries, spelled):
            link = _FRONT + b"/" + name
            is_new = not known.issuperset(there.get(name, ()))
            if (is_new or (name, link) in self._recorded) and not self._is_narrow(shown):
                target = (
                    files.get(path) or files.get(library_directory.other_spelling(path)) or path
                )
                try:
                    self._root.link(os.fsdecode(target), os.fsdecode(link))
                except OSError:
                    continue  # the image has something there; the entry itself remains
                links.append((name, link))
        return links

    def _is_narrow(self, path: bytes) -> bool:
        return self._has_narrow and _is_narrow(path.rpartition(b"/")[0])

    def _merged(self, held: ld_cache.Cache, front: list[Pair], behind: list[Pair]) -> bytes:
        stale = self._recorded.difference(front, behind)
        if not self._has_narrow:
            return held.merged(front, stale, behind)
        narrows = [entry for entry in front if self._is_narrow(entry[1])]
        merged = held.merged([pair for pair in front if pair not in narrows], stale, behind)
        flags, was_merged = ld_cache.flags_for(library_directory.MACHINE), bool(self._recorded)
        return ld_cache.merged(merged, narrows, flags=flags, was_merged=was_merged)


def _directories(entries: Iterable[Pair]) -> list[bytes]:
    return list(dict.fromkeys([path.rpartition(b"/")[0] for _, path in entries]))


def _is_narrow(where: bytes) -> bool:
    return library_directory.is_narrow(os.fsdecode(where) + "/")
