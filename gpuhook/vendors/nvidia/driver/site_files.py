# SPDX-License-Identifier: Apache-2.0
"""The driver's files with the site's changes: added and dropped files (see site_rules.py).

A file to add that does not exist is a warning, not a fault: an optional part of a driver must not
cost a node its GPUs.
"""

from __future__ import annotations

import os
import posixpath
import stat
from fnmatch import fnmatchcase

from gpuhook.loader import elf, library_directory
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.inventory.inventory import DriverFile, Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.loader.elf import Elf
    from gpuhook.vendors.nvidia.driver.site_rules import Added, Rules
    from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

_NO_LIBRARY = "{where}: {path} is not a shared library; skipped"
_ABSENT = "{where}: {path} does not exist; skipped"
_WIDTH = (
    "{where}: {path} is a 32-bit library, which containers find only in {directory} or an "
    "i386-linux-gnu directory; skipped"
)


def changed(
    rules: Rules, root: DriverRoot, files: Iterable[DriverFile], links: Iterable[Link]
) -> tuple[list[DriverFile], list[Link], list[str]]:
    """Return (files, links, warnings) after the changes of `rules`; an added file wins."""
    kept: list[DriverFile] = []
    gone: list[DriverFile] = []
    for file in files:
        is_dropped = _is_dropped(rules, file.host_path, file.container_path)
        (gone if is_dropped else kept).append(file)
    left = _without(rules, list(links), gone)
    warnings: list[str] = []
    for one in rules.add:
        added, trouble = _added(root, one)
        if added is None:
            warnings.append(trouble)
            continue
        kept = [file for file in kept if file.container_path != added.container_path]
        left = [link for link in left if link.path != added.container_path]
        kept.append(added)
    return kept, left, warnings


def _is_dropped(rules: Rules, *paths: str) -> bool:
    return any(fnmatchcase(path, glob) for path in paths for glob in rules.drop)


def _without(rules: Rules, links: list[Link], gone: list[DriverFile]) -> list[Link]:
    """Return the links that are not dropped, and whose targets are not dropped."""
    nowhere = {file.container_path for file in gone}
    # The link with a library's SONAME is dropped with it.
    nowhere |= {
        f"{posixpath.dirname(file.container_path)}/{file.soname}" for file in gone if file.soname
    }
    while True:
        left = [
            link
            for link in links
            if _end(link) not in nowhere and not _is_dropped(rules, link.path)
        ]
        if len(left) == len(links):
            return left
        nowhere |= {link.path for link in links} - {link.path for link in left}
        links = left


def _end(link: Link) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(link.path), link.target))


def _added(root: DriverRoot, one: Added) -> tuple[DriverFile | None, str]:
    """Return (the file, "") or (None, the warning)."""
    real = root.real(root.inside(one.path))
    host = root.host(real or one.path)
    facts = {"where": one.where, "path": host, "directory": library_directory.DIRECTORY}
    try:
        status = os.stat(host)
        binary = elf.read(host) if stat.S_ISREG(status.st_mode) else None
    except OSError as error:
        if real is None or isinstance(error, FileNotFoundError):
            return None, _ABSENT.format(**facts)
        return None, f"{one.where}: {host} cannot be read: {error.strerror}; skipped"
    if real is None:
        return None, _ABSENT.format(**facts)
    kind = one.kind or _kind(status, binary)
    place = one.container_path or root.container(one.path)
    soname = None
    if kind in ("library", "plugin"):
        if binary is None:
            return None, _NO_LIBRARY.format(**facts)
        soname = binary.soname or posixpath.basename(place)
        if kind == "library" and binary.bits == 32 and not vocabulary.is_32_bit(place):
            if one.container_path:
                return None, _WIDTH.format(**facts)
            place = f"{library_directory.DIRECTORY}/{posixpath.basename(place)}"
    return DriverFile(kind, host, place, soname, one.capabilities), ""


def _kind(status: os.stat_result, binary: Elf | None) -> str:
    if stat.S_ISDIR(status.st_mode):
        return "directory"
    if stat.S_ISSOCK(status.st_mode):
        return "socket"
    if binary is not None and binary.soname:
        return "library"
    return "binary" if status.st_mode & 0o111 else "config"
