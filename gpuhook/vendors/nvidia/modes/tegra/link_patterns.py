# SPDX-License-Identifier: Apache-2.0
"""Patterns and chains of links inside a root, for the lines of a Tegra's CSV files.

All loops are bounded, and no path leads out of the root.
"""

from __future__ import annotations

import os
import posixpath
from fnmatch import fnmatchcase
from itertools import islice

from gpuhook.host.hot.files import MAX_LINKS
from gpuhook.vendors.nvidia.inventory.inventory import Link

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.hot.extras.driver_root import DriverRoot

_MAGIC = frozenset("*?[")
_MAX_MATCHES = 4096


def matches(root: DriverRoot, pattern: str) -> list[str]:
    """Return the existing paths inside `root` that match `pattern`, in order.

    `*`, `?` and `[...]` match characters of one component, as in filepath.Glob.
    """
    if _MAGIC.isdisjoint(pattern) or root.real(pattern) is not None:
        return [pattern] if root.real(pattern) is not None else []
    found = [""]
    for part in pattern.strip("/").split("/"):
        if _MAGIC.isdisjoint(part):
            found = [f"{directory}/{part}" for directory in found]
        else:
            found = list(islice(_below(root, found, part), _MAX_MATCHES))
    return [path for path in found if root.real(path) is not None]


def _below(root: DriverRoot, directories: list[str], pattern: str) -> Iterator[str]:
    for directory in directories:
        for name in root.names(directory or "/"):
            if fnmatchcase(name, pattern):
                yield f"{directory}/{name}"


def chain(root: DriverRoot, path: str) -> tuple[list[Link], str | None]:
    """Return (each link from `path` on, the file at their end or None for a dangling link).

    A link keeps its target, unless its directory is reached by a link: then its target is absolute,
    as a container may have that directory elsewhere. A circle has no end, either.
    """
    links: list[Link] = []
    for _ in range(MAX_LINKS):
        directory, _, name = path.rpartition("/")
        real = root.real(directory or "/")
        if real is None or name in ("", ".", ".."):
            break
        at = posixpath.join(real, name)
        try:
            target = os.readlink(root.host(at))
        except OSError:
            break
        following = posixpath.join(real, target)
        is_plain = posixpath.normpath(path) == at
        links.append(Link(path, target if is_plain else posixpath.normpath(following)))
        path = following
    return links, root.real(path)


def is_ignored(path: str, patterns: tuple[str, ...]) -> bool:
    """Return whether one of `patterns` matches `path`: the whole of it, after `**/` its last part.

    As in filepath.Match, `*` stops at a slash.
    """
    parts = path.split("/")
    for pattern in patterns:
        if pattern.startswith("**/"):
            if fnmatchcase(parts[-1], pattern[3:]):
                return True
            continue
        components = pattern.split("/")
        if len(components) == len(parts) and all(map(fnmatchcase, parts, components)):
            return True
    return False
