# SPDX-License-Identifier: Apache-2.0
"""Links and the loader's files, made in a root file system.

HOT. Run by the wrapper before the runtime starts, or by the hook inside the container's mounts.
Nothing of the image is executed or loaded. Doing it twice changes nothing the second time.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.loader import cache, conf, musl, narrow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from gpuhook.container.rootfs import Root

    class Tree(Protocol):
        """A root file system that can be provided: the real one, or a rehearsal of it."""

        def link(self, target: str, path: str) -> bool: ...
        def names(self, path: str) -> list[str]: ...
        def read(self, path: str, limit: int) -> bytes | None: ...
        def write(self, path: str, data: bytes) -> bool: ...


CACHE = "/etc/ld.so.cache"
MAX_CACHE = 16 << 20
_MAX_ARCHITECTURES = 8  # an image may name as many as it likes


class Provision:
    """What a root file system is to get.

    `libraries` are (container path, SONAME) of mounted libraries in the loader's directories,
    `links` are (target, container path), `preferred` are (SONAME, path) of libraries of the image
    that the loader is to find before those, `files` are (container path, content). `together` are
    the loader's entries of all that the container gets, in the order of preference, where that is
    more than this provision: what is recorded besides is of an earlier start. `index` makes the
    cache of the root file system's own libraries anew, where it is not to be taken as it is.
    """

    __slots__ = ("files", "index", "libraries", "links", "preferred", "together")

    def __init__(
        self,
        libraries: list[tuple[str, str]],
        links: list[tuple[str, str]],
        preferred: list[tuple[str, str]],
    ) -> None:
        self.files: list[tuple[str, bytes]] = []
        self.libraries = libraries
        self.preferred = preferred
        self.together: list[tuple[bytes, bytes]] = []
        self.index: Callable[[list[bytes]], bytes] | None = None
        self.links = soname_links(libraries) + links

    def paths(self) -> list[str]:
        """Return the container paths that `provide` writes."""
        loader = [CACHE, conf.MAIN, conf.DROP_IN] if self.libraries else []
        return [path for _, path in self.links] + [path for path, _ in self.files] + loader

    def entries(self) -> list[tuple[bytes, bytes]]:
        """Return the (name, path) pairs of the loader cache, in the order of preference.

        Versioned links beside the libraries are among them, as ldconfig would have it.
        """
        own = [(soname, _sibling(path, soname)) for path, soname in self.libraries]
        directories = {path.rpartition("/")[0] for path, _ in self.libraries}
        for _, path in self.links:
            directory, _, name = path.rpartition("/")
            if directory in directories and name.startswith("lib") and ".so." in name:
                own.append((name, path))
        pairs = dict.fromkeys(self.preferred + own)
        return [(os.fsencode(name), os.fsencode(path)) for name, path in pairs]


def soname_links(libraries: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return (target, container path) of the links by whose names the loader opens `libraries`."""
    return [
        (path.rpartition("/")[2], _sibling(path, soname))
        for path, soname in libraries
        if not path.endswith("/" + soname)
    ]


def provide(root: Tree, provision: Provision) -> list[OSError]:
    """Make links, files and the loader's files in `root`; returns why each missing one is missing.

    A cache of the image that cannot be understood is replaced by one of ours alone: the loader
    would have ignored it, and finds the image's own libraries in its default directories.
    """
    failures: list[OSError] = []
    for target, path in provision.links:
        try:
            root.link(target, path)
        except OSError as error:
            failures.append(_named(error, path))
    for path, content in provision.files:
        try:
            root.write(path, content)
        except OSError as error:
            failures.append(_named(error, path))
    if provision.libraries:
        try:
            _loader(root, provision.together or provision.entries(), provision.index)
        except OSError as error:
            failures.append(_named(error, "the loader's files in /etc"))
    return failures


def _named(error: OSError, path: str) -> OSError:
    error.filename = path
    return error


def _loader(
    root: Tree,
    entries: list[tuple[bytes, bytes]],
    index: Callable[[list[bytes]], bytes] | None,
) -> None:
    machine = os.uname().machine
    dirs = list(dict.fromkeys(path.rpartition(b"/")[0] for _, path in entries))
    wide = [where for where in dirs if not _is_narrow(where)]
    narrows = []  # the entries of 32-bit libraries
    if len(wide) < len(dirs):
        narrows = [entry for entry in entries if _is_narrow(entry[1].rpartition(b"/")[0])]
    names = root.names("/lib")
    architectures = musl.architectures(names)[:_MAX_ARCHITECTURES]
    for architecture in architectures:
        path = musl.path_file(architecture)
        root.write(path, musl.merged(root.read(path, musl.MAX_BYTES), wide))
    if architectures and not _has_glibc(root, names):
        return
    recorded = conf.recorded(root.read(conf.DROP_IN, conf.MAX_BYTES) or b"")
    stale = [entry for entry in recorded if entry not in entries]
    made = index(dirs) if index else None
    try:
        held = root.read(CACHE, MAX_CACHE) if made is None else made
        merged = _merged(held, entries, stale, machine, narrows)
    except GpuhookError:
        merged = _merged(None, entries, [], machine, narrows)
    root.write(CACHE, merged)
    # Without the drop-in a later ldconfig in the container would drop the driver again.
    root.write(conf.DROP_IN, conf.render(dirs, entries))
    text = root.read(conf.MAIN, conf.MAX_BYTES) or b""
    if not conf.includes_drop_ins(text):
        separator = b"" if text.endswith(b"\n") or not text else b"\n"
        root.write(conf.MAIN, text + separator + conf.INCLUDE)


def _merged(
    data: bytes | None,
    entries: list[tuple[bytes, bytes]],
    stale: list[tuple[bytes, bytes]],
    machine: str,
    narrows: list[tuple[bytes, bytes]],
) -> bytes:
    """Return the cache with `entries`; `narrows` of them say so, for the loader's choice.

    Faults GH1600 to GH1602.
    """
    wide = [entry for entry in entries if entry not in narrows] if narrows else entries
    merged = cache.merged(data, wide, stale, flags=cache.flags_for(machine))
    if narrows:
        merged = cache.merged(merged, narrows, flags=cache.flags_for(narrow.MACHINE))
    return merged


def _is_narrow(directory: bytes) -> bool:
    return narrow.is_narrow(os.fsdecode(directory) + "/")


def _has_glibc(root: Tree, lib_names: list[str]) -> bool:
    return any(name.startswith("ld-linux") for name in [*lib_names, *root.names("/lib64")])


def _sibling(path: str, name: str) -> str:
    return path.rpartition("/")[0] + "/" + name


def require_writable(root: Root) -> None:
    """Raise GH1305 if the root file system is mounted read-only: no runtime can mount into it."""
    if os.statvfs(f"/proc/self/fd/{root.directory('/')}").f_flag & os.ST_RDONLY:
        raise fault("GH1305", path=root.path)
