# SPDX-License-Identifier: Apache-2.0
"""The libraries of a node's driver: their directories, versions, and the one that is loaded."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from gpuhook.errors import GpuhookError
from gpuhook.loader import ld_cache_entries
from gpuhook.node_facts.check import fact
from gpuhook.vendors.nvidia.driver.driver_locations import NIXOS_LIBRARIES, OTHER_ROOTS
from gpuhook.vendors.nvidia.driver.libcuda import DIRECTORIES, version_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.node_facts.check import ExaminedNode

CUDA, ML = "libcuda.so", "libnvidia-ml.so"
CACHE = "/etc/ld.so.cache"
_32_BIT = ("/usr/lib32/", "/usr/lib/i386-", "/lib/i386-", "/lib32/")
_CACHE_LIMIT = 16 << 20


@dataclass(slots=True)
class UserSpace:
    """The libraries of the driver below `root`.

    `versions` has, for each name such as "libcuda.so", version -> path without links; `current` has
    the version that the SONAME (libcuda.so.1) leads to.
    """

    root: str
    directories: list[str] = field(default_factory=list)
    versions: dict[str, dict[str, str]] = field(default_factory=lambda: {CUDA: {}, ML: {}})
    current: dict[str, str] = field(default_factory=dict)
    dangling: list[str] = field(default_factory=list)

    @property
    def version(self) -> str:
        """The version of the loaded libraries, "" if no SONAME leads to one."""
        return self.current.get(ML) or self.current.get(CUDA) or ""


def at(root: str, path: str) -> str:
    """Return `path` below the node's directory `root`."""
    return posixpath.normpath(root.rstrip("/") + "/" + path.lstrip("/"))


@fact
def driver_user_space(node: ExaminedNode) -> UserSpace:
    """Return the driver's libraries, below the driver root or another usual root."""
    roots = (node.driver_root, *OTHER_ROOTS) if node.driver_root == "/" else (node.driver_root,)
    found = [_below(node, root) for root in roots]
    return next((one for one in found if one.versions[CUDA] or one.versions[ML]), found[0])


def _below(node: ExaminedNode, root: str) -> UserSpace:
    found = UserSpace(root)
    for directory in (*DIRECTORIES, NIXOS_LIBRARIES, *_cached(node, root)):
        real = node.tree.real(at(root, directory))
        if real is not None and real not in found.directories:
            found.directories.append(real)
            _take(node, found, real)
    return found


def _take(node: ExaminedNode, found: UserSpace, directory: str) -> None:
    for name in node.tree.names(directory):
        stem = CUDA if name.startswith(CUDA + ".") else ML if name.startswith(ML + ".") else ""
        if not stem:
            continue
        path = f"{directory}/{name}"
        real = node.tree.real(path)
        version = version_in(real or "")
        if real is None:
            found.dangling.append(path)
        elif version:
            found.versions[stem].setdefault(version, real)
            if name == stem + ".1":
                found.current.setdefault(stem, version)


def _cached(node: ExaminedNode, root: str) -> list[str]:
    """Return the directories of libcuda.so.1 by the root's loader cache."""
    return [posixpath.dirname(path) for path in in_cache(node, root) or ()]


def in_cache(node: ExaminedNode, root: str) -> list[str] | None:
    """Return the 64-bit paths of libcuda.so.1 in the root's loader cache, None without a cache."""
    content = node.tree.read(at(root, CACHE), _CACHE_LIMIT)
    try:
        entries = None if content is None else ld_cache_entries.parse(content)
    except GpuhookError:
        entries = None
    if entries is None:
        return None
    names = [entry.path for entry in entries if entry.soname == b"libcuda.so.1"]
    paths = [name.decode("utf-8", "replace") for name in names]
    return [path for path in paths if not path.startswith(_32_BIT)]
