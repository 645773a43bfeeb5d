# SPDX-License-Identifier: Apache-2.0
"""The cache entries that ldconfig would make for a directory of the image, read from its files.

Loaded only for an image that has libraries in a directory of the driver's.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.loader import elf, library_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from typing import Protocol

    class Tree(Protocol):
        """A root file system that can be read."""

        def is_link(self, path: str) -> bool: ...
        def open_file(self, path: str) -> int | None: ...


MAX_LIBRARIES = 128  # each is opened, and an image may have any number
_OWN = "/proc/self/exe"


def entries(
    root: Tree, where: str, names: Sequence[str], skipped: Container[str] = ()
) -> list[tuple[str, str]]:
    """Return the (name, path) entries of the directory `where`, which contains `names`.

    Libraries of another machine, those in `skipped`, and unreadable files are skipped. A directory
    of more than MAX_LIBRARIES has none.
    """
    libraries = [
        name for name in names if library_directory.is_library(name) and name not in skipped
    ]
    if len(libraries) > MAX_LIBRARIES:
        return []
    there = frozenset(names)
    own = elf.read(_OWN)
    found: dict[str, str] = {}
    for name in libraries:
        path = f"{where}/{name}"
        library = _library(root, path)
        if library is None or own is None:
            continue
        if (library.bits, library.machine) != (own.bits, own.machine):
            continue
        entry = library.soname or name
        if root.is_link(path):
            entry = library_directory.entry_of_link(name, entry)
        if entry in there:
            found[entry] = f"{where}/{entry}"
    return list(found.items())


def entries_of_image(
    root: Tree, where: bytes, names: Sequence[str], ours: Container[str]
) -> list[tuple[bytes, bytes]]:
    """Return the entries of the directory `where` without `ours`, the driver's libraries."""
    found = entries(root, os.fsdecode(where), names, ours)
    return [(os.fsencode(name), os.fsencode(path)) for name, path in found]


def _library(root: Tree, path: str) -> elf.Elf | None:
    try:
        fd = root.open_file(path)
        if fd is None:
            return None
        try:
            return elf.read(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)
    except (GpuhookError, OSError):
        return None
