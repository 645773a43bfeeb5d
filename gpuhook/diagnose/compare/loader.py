# SPDX-License-Identifier: Apache-2.0
"""What the container's loader finds under each library's name, and where links lead.

What counts is which file is found, not under which path or by whose file below /etc. A library
that is not mounted as it should be is told of as a mount alone.
"""

from __future__ import annotations

import os
from posixpath import dirname, join, normpath

from gpuhook.container.provide import CACHE, MAX_CACHE
from gpuhook.diagnose.compare import item, reasons
from gpuhook.errors import GpuhookError
from gpuhook.loader import cache, musl
from gpuhook.vendors.nvidia import provision

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gpuhook.container.operations import Live
    from gpuhook.diagnose.compare.expected import Expected
    from gpuhook.diagnose.compare.item import Item

_CHAIN = 40  # links that Linux follows: path_resolution(7)
_NOT_THERE = "nothing that the loader finds"


def items(
    held: Live, by: str, expected: Expected, bad: Collection[str], moved: Collection[str]
) -> Iterator[Item]:
    """Yield libraries and links; `bad` are the mounts that are not what they should be.

    Of those that are `moved`, mounted at another path, only what the loader finds counts.
    """
    side = _Side(held, by, expected)
    for job in expected.todo:
        made, _ = provision.of(held.root, [job])
        links = {path: normpath(join(dirname(path), target)) for target, path in made.links}
        seen: set[str] = set()
        for raw_name, raw_path in made.entries():
            name, path = os.fsdecode(raw_name), os.fsdecode(raw_path)
            end = _end(path, links)
            if name not in seen and end not in bad:
                yield side.library(name, path, end)
            seen.add(name)
        for path, target in links.items():
            end = _end(path, links)
            if end not in bad and end not in moved and side.identity(end) is not None:
                yield side.link(path, target, end, is_versioned=path.rpartition("/")[2] in seen)


class _Side:
    """What is there, looked at beside the files that gpuhook would have mounted."""

    def __init__(self, held: Live, by: str, expected: Expected) -> None:
        self._held = held
        self._by = by
        self._known = _Known(held)
        self._seen: dict[str, tuple[int, int] | None] = {}
        self._expected = expected
        mounts = expected.edits.get("mounts") or ()
        self._files = {mount["containerPath"]: mount["hostPath"] for mount in mounts}

    def library(self, name: str, path: str, end: str) -> Item:
        """Return the item of a name that the loader knows: gpuhook's is `path`, that of `end`."""
        there = self._known.place(name)
        if there and self._at(there) == self.identity(end):
            return item.Item(item.LIBRARY, name, item.SAME, there, path)
        told = there or self._known.trouble or _NOT_THERE
        reason = reasons.missing(path, self._by, self._expected)
        return item.Item(item.LIBRARY, name, item.DIFFERS, told, path, reason)

    def link(self, path: str, target: str, end: str, *, is_versioned: bool) -> Item:
        """Return the item of a link, whatever its text is: what counts is where it leads."""
        found = self._at(path)
        if found is not None and found == self.identity(end):
            return item.Item(item.LINK, path, item.SAME, target, target)
        reason = reasons.link(path, self._by, is_versioned=is_versioned)
        return item.of(item.LINK, path, "another file" if found else "", target, reason)

    def identity(self, path: str) -> tuple[int, int] | None:
        """Return the file that gpuhook would have at `path`: the host's, or the image's own."""
        if path not in self._files:
            return self._at(path)
        try:
            found = os.stat(self._files[path])
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _at(self, path: str) -> tuple[int, int] | None:
        if path not in self._seen:
            found = self._held.root.found(path)
            self._seen[path] = None if found is None else (found.st_dev, found.st_ino)
        return self._seen[path]


def _end(path: str, links: dict[str, str]) -> str:
    for _ in range(_CHAIN):
        if path not in links:
            break
        path = links[path]
    return path


class _Known:
    """Where the loader of the container finds libraries: glibc's cache, or musl's directories."""

    def __init__(self, held: Live) -> None:
        self._root = held.root
        self._cache: dict[str, str] = {}
        self._directories: list[str] = []
        self.trouble = ""
        names = self._root.names("/lib")
        for architecture in musl.architectures(names)[:1]:
            text = self._root.read(musl.path_file(architecture), musl.MAX_BYTES)
            text = musl.DEFAULT if text is None else text.partition(b"\0")[0]
            self._directories = os.fsdecode(text).replace("\n", ":").split(":")
        try:
            content = self._root.read(CACHE, MAX_CACHE)
            flags = cache.flags_for(os.uname().machine)
            for entry in cache.parse(content) if content else ():
                if entry.flags == flags and not entry.hwcap:
                    self._cache.setdefault(os.fsdecode(entry.soname), os.fsdecode(entry.path))
        except (GpuhookError, OSError) as error:
            self.trouble = f"no cache that can be read: {error}"

    def place(self, name: str) -> str:
        """Return the path that the loader opens for a library's name, "" if it finds none."""
        if name in self._cache:
            return self._cache[name]
        for directory in filter(None, self._directories):
            if self._root.found(f"{directory}/{name}") is not None:
                return f"{directory}/{name}"
        return ""
