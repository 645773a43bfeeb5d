# SPDX-License-Identifier: Apache-2.0
"""The device nodes, files and links on this system that the lines of a Tegra's CSV files mean."""

from __future__ import annotations

import os
import posixpath
import stat
from dataclasses import dataclass, field

from gpuhook.vendors.nvidia.driver.driver_libraries import soname_of
from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, DriverFile, Link
from gpuhook.vendors.nvidia.modes.tegra import csv_files
from gpuhook.vendors.nvidia.modes.tegra import link_patterns as chains

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.vendors.nvidia.discover import Roots
    from gpuhook.vendors.nvidia.modes.tegra.csv_files import Line

# Links that programs expect without an entry: of a library -> (name, its target or None).
_ALWAYS = {
    "libcuda.so.": ("libcuda.so", "libcuda.so.1"),
    "libGLX_nvidia.so.": ("libGLX_indirect.so.0", None),
    "libnvidia-opticalflow.so.": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
}
_SHOWN = 8


@dataclass
class TegraFiles:
    """Nodes, files and links by their paths in containers, and lines without a file here."""

    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    files: dict[str, DriverFile] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def warnings(self) -> list[str]:
        """Return one sentence about missing files, none if all exist."""
        if not self.missing:
            return []
        rest = len(self.missing) - _SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        return [f"missing on this system: {', '.join(self.missing[:_SHOWN])}{more}"]

    def without(self, other: TegraFiles) -> TegraFiles:
        """Return the entries that are not in `other`."""
        return TegraFiles(
            {path: one for path, one in self.nodes.items() if path not in other.nodes},
            {path: one for path, one in self.files.items() if path not in other.files},
            {path: one for path, one in self.links.items() if path not in other.links},
        )


class Search:
    """A driver root and a dev root, in which lines are looked up."""

    def __init__(self, where: Roots, ignored: tuple[str, ...] = ()) -> None:
        self._root = DriverRoot(where.driver)
        self._dev = DriverRoot(where.dev)
        self._directories = (*map(self._root.inside, where.library_search_paths), "/")
        self._ignored = ignored

    def of(self, lines: Iterable[Line]) -> TegraFiles:
        """Return the files of `lines`; the paths of missing ones are in `missing`."""
        found = TegraFiles()
        take = {"dev": self._node, "dir": self._directory, "lib": self._file, "sym": self._link}
        for line in lines:
            if line.kind == "sym" and chains.is_ignored(line.path, self._ignored):
                continue
            taken = [take[line.kind](found, place) for place in self._matches(line)]
            if True not in taken:
                found.missing.append(line.path)
        _tidy(found)
        return found

    def _matches(self, line: Line) -> list[str]:
        if line.kind == "dev":
            return chains.matches(self._dev, line.path)
        if line.path.startswith("/"):
            return chains.matches(self._root, line.path)
        for directory in self._directories:
            places = chains.matches(self._root, posixpath.join(directory, line.path))
            if places:
                return places
        return []

    def _node(self, found: TegraFiles, path: str) -> bool:
        host = self._dev.host(self._dev.real(path) or path)
        try:
            status = os.stat(host)
        except OSError:
            return False
        if not stat.S_ISCHR(status.st_mode):
            return False
        found.nodes[path] = DeviceNode.of_status(path, host, status)
        return True

    def _directory(self, found: TegraFiles, path: str) -> bool:
        real = self._root.directory(path)
        if real is None or csv_files.misplaced("dir", path):
            return False
        found.files[path] = DriverFile("directory", self._root.host(real), path)
        return True

    def _file(self, found: TegraFiles, path: str) -> bool:
        real = self._root.real(path)
        if real is None:
            return False
        host = self._root.host(real)
        if os.path.isdir(host):
            return self._directory(found, real)
        if not os.path.isfile(host) or csv_files.misplaced("lib", real):
            return False
        soname = soname_of(host)
        found.files[real] = DriverFile("library" if soname else "config", host, real, soname)
        if soname:
            self._link_names(found, real, soname)
        return True

    def _link(self, found: TegraFiles, path: str) -> bool:
        chain, end = chains.chain(self._root, path)
        if end is None or not self._file(found, end):
            return False
        for link in chain:
            found.links.setdefault(link.path, link)
        return True

    def _link_names(self, found: TegraFiles, real: str, soname: str) -> None:
        directory, _, name = real.rpartition("/")
        short = name.partition(".so")[0] + ".so"
        if short != name and self._root.real(f"{directory}/{short}") == real:
            found.links.setdefault(f"{directory}/{short}", Link(f"{directory}/{short}", soname))
        for beginning, (link, target) in _ALWAYS.items():
            if name.startswith(beginning):
                place = f"{directory}/{link}"
                found.links.setdefault(place, Link(place, target or name))


def _tidy(found: TegraFiles) -> None:
    """Drop links inside directories that are mounted as a whole, and links at files' paths."""
    directories = (path for path, file in found.files.items() if file.kind == "directory")
    whole = tuple(f"{path}/" for path in directories)
    for path in list(found.links):
        if path in found.files or path.startswith(whole):
            del found.links[path]
