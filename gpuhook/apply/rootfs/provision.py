# SPDX-License-Identifier: Apache-2.0
"""The links and files that a root file system is to get for its GPUs."""

from __future__ import annotations

import os

from gpuhook.loader import library_directory, loader_paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.apply.rootfs.loader_files import Index, Pair


class Provision:
    """The files that a root file system is to get.

    `libraries` are (container path, SONAME) of mounted libraries in the loader's directories; a
    library without a SONAME has its file's name. `links` are (target, container path), `preferred`
    are (name, path) of libraries of the image that the loader finds before those, `files` are
    (container path, content). `together` is the provision of the whole container, if it has more;
    `entries_now`, of a running container, are the loader's entries that remain. Other recorded
    entries belong to an earlier start. `index` makes the cache of the root file system's own
    libraries, if its cache is not used.
    """

    def __init__(
        self,
        libraries: list[tuple[str, str]],
        links: list[tuple[str, str]],
        preferred: list[tuple[str, str]],
    ) -> None:
        self.files: list[tuple[str, bytes]] = []
        self.libraries = libraries
        self.preferred = preferred
        self.together: Provision | None = None
        self.entries_now: list[Pair] = []
        self.index: Index | None = None
        self.links = soname_links(libraries) + links

    def paths(self) -> list[str]:
        """Return the container paths that `provide` writes."""
        loader = loader_paths.paths() if self.libraries else []
        return [path for _, path in self.links] + [path for path, _ in self.files] + loader

    def entries(self) -> list[Pair]:
        """Return the (name, path) pairs of the loader's cache, in the order of preference."""
        found = [(os.fsencode(name), os.fsencode(path)) for name, path in self.preferred]
        return list(dict.fromkeys(found + self.own_entries()))

    def own_entries(self) -> list[Pair]:
        """Return the entries that ldconfig makes of the libraries and of the links to them."""
        sonames = dict(self.libraries)
        for path, soname in self.libraries:
            sonames.setdefault(_sibling(path, soname), soname)
        found = [(soname, _sibling(path, soname)) for path, soname in self.libraries]
        for target, path in self.links:
            soname = sonames.get(_sibling(path, target), "")
            name = path.rpartition("/")[2]
            if soname and library_directory.is_library(name):
                entry = library_directory.entry_of_link(name, soname)
                found.append((entry, _sibling(path, entry)))
        return [(os.fsencode(name), os.fsencode(path)) for name, path in dict.fromkeys(found)]

    def behind(self) -> dict[bytes, bytes]:
        """Return the path of the library's own file for the path of each entry."""
        files = {}
        for path, soname in self.libraries:
            files[_sibling(path, soname)] = path
        for target, path in self.links:
            file = _sibling(path, target)
            files.setdefault(path, files.get(file, file))
        return {os.fsencode(path): os.fsencode(file) for path, file in files.items()}


def soname_links(libraries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (target, container path) of the links by which the loader opens `libraries`."""
    return [
        (path.rpartition("/")[2], _sibling(path, soname))
        for path, soname in libraries
        if not path.endswith("/" + soname)
    ]


def _sibling(path: str, name: str) -> str:
    return path.rpartition("/")[0] + "/" + name
