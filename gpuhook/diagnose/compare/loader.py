# SPDX-License-Identifier: Apache-2.0
"""What the container's loader finds under each library's name, and where links lead.

What counts is which file is found, not under which path or by whose file below /etc. A library
that is not mounted as it should be is told of as a mount alone.
"""

from __future__ import annotations

import os
from posixpath import dirname, join, normpath

from gpuhook.diagnose.compare import item, reasons
from gpuhook.diagnose.loader_view import LoaderView
from gpuhook.loader import narrow
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
        seen: set[tuple[str, bool]] = set()
        for raw_name, raw_path in made.entries():
            name, path = os.fsdecode(raw_name), os.fsdecode(raw_path)
            if path in links and name.endswith(".so"):
                continue  # a link for the linker, which is compared as a link
            end = _end(path, links)
            # The 32-bit library of a name is another one.
            known = name, narrow.is_narrow(path)
            is_unheard_of = narrow.is_narrow(path) and side.is_musl
            if known not in seen and end not in bad and not is_unheard_of:
                yield side.library(name, path, end)
            seen.add(known)
        for path, target in links.items():
            end = _end(path, links)
            if end not in bad and end not in moved and side.identity(end) is not None:
                known = path.rpartition("/")[2], narrow.is_narrow(path)
                is_versioned = known in seen
                yield side.link(path, target, end, is_versioned=is_versioned)


class _Side:
    """What is there, looked at beside the files that gpuhook would have mounted."""

    def __init__(self, held: Live, by: str, expected: Expected) -> None:
        self._held = held
        self._by = by
        self._known = LoaderView(held)
        self._seen: dict[str, tuple[int, int] | None] = {}
        self._expected = expected
        mounts = expected.edits.get("mounts") or ()
        self._files = {mount["containerPath"]: mount["hostPath"] for mount in mounts}

    @property
    def is_musl(self) -> bool:
        """Whether the container's loader is musl's, which is given no 32-bit libraries."""
        return self._known.is_musl

    def library(self, name: str, path: str, end: str) -> Item:
        """Return the item of a name that the loader knows: gpuhook's is `path`, that of `end`."""
        is_32_bit = narrow.is_narrow(path)
        there = self._known.place(name, is_32_bit=is_32_bit)
        name += " (32-bit)" if is_32_bit else ""
        if there and self._at(there) == self.identity(end):
            return item.Item(item.LIBRARY, name, item.SAME, there, path)
        trouble = self._known.trouble
        told = there or (f"no cache that can be read: {trouble}" if trouble else _NOT_THERE)
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
