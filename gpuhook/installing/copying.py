# SPDX-License-Identifier: Apache-2.0
"""A runtime tree on a host: a directory for each version, and one link that says which is used.

    <install-dir>/versions/<version>-<digest>/...
    <install-dir>/current -> versions/<version>-<digest>
    <install-dir>/bin -> current/bin

Engines and CDI specs name <install-dir>/bin, so an upgrade changes no configuration. A container
that runs names the hook of the version that it began with.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager

from gpuhook.errors import fault
from gpuhook.installing import launchers
from gpuhook.installing.tree import DESCRIPTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.installing.tree import Tree

VERSIONS = "versions"
CURRENT = "current"
PROGRAMS = "bin"
LOCK = ".lock"
_LINKS = {PROGRAMS: f"{CURRENT}/bin"}


@contextmanager
def locked(place: str) -> Iterator[None]:
    """Hold the lock of the installation at `place`, which is made: others wait."""
    os.makedirs(place, 0o755, exist_ok=True)
    path = os.path.join(place, LOCK)
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def require_runnable(place: str) -> None:
    """Raise GH2102 where the file system at `place` is read-only, or lets no program run."""
    found = os.statvfs(_existing(place))
    if found.f_flag & os.ST_RDONLY:
        raise fault("GH2102", path=place, reason="its file system is read-only")
    if found.f_flag & os.ST_NOEXEC:
        raise fault("GH2102", path=place, reason="its file system is mounted noexec")


def is_there(tree: Tree, place: str) -> bool:
    """Return whether the tree is installed at `place` and is the one that is used."""
    return used(place) == tree.name and os.path.lexists(os.path.join(place, PROGRAMS))


def used(place: str) -> str:
    """Return the name of the version that is used, "" for none."""
    try:
        name = os.path.basename(os.readlink(os.path.join(place, CURRENT)))
    except OSError:
        return ""
    return name if os.path.isfile(os.path.join(place, VERSIONS, name, DESCRIPTION)) else ""


def versions(place: str) -> list[str]:
    """Return the names of the versions at `place`, the newest first."""
    directory = os.path.join(place, VERSIONS)
    try:
        names = [name for name in os.listdir(directory) if not name.startswith(".")]
    except FileNotFoundError:
        return []
    return sorted(names, key=lambda name: -os.lstat(os.path.join(directory, name)).st_mtime_ns)


def copy(tree: Tree, place: str, at: str) -> None:
    """Copy the tree to its directory at `place`, which the host calls `at`, and use it.

    What is there is complete: a copy that was broken off begins anew.
    """
    directory = os.path.join(place, VERSIONS)
    final = os.path.join(directory, tree.name)
    if not os.path.isfile(os.path.join(final, DESCRIPTION)):
        os.makedirs(directory, 0o755, exist_ok=True)
        draft = os.path.join(directory, f".{tree.name}")
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(final, ignore_errors=True)
        try:
            _fill(tree, draft, f"{at}/{VERSIONS}/{tree.name}", f"{at}/{PROGRAMS}")
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        os.sync()
        os.rename(draft, final)
    os.utime(final)  # the newest one
    use(tree.name, place)


def use(name: str, place: str) -> None:
    """Have the links lead to the version `name`, each in one step; "" removes them."""
    if not name:
        _unlink(place)
        return
    for link, target in {CURRENT: f"{VERSIONS}/{name}", **_LINKS}.items():
        _link(os.path.join(place, link), target)


def _fill(tree: Tree, draft: str, at: str, programs: str) -> None:
    def left_out(directory: str, names: list[str]) -> list[str]:
        """The plugin's packages stay in the image, and so do launchers filled in for it."""
        inner = os.path.relpath(directory, tree.path)
        out = {".": ["bin", "libexec"], "lib": ["plugin"]}.get(inner, [])
        return [name for name in names if name in out]

    shutil.copytree(tree.path, draft, symlinks=True, ignore=left_out)
    os.chmod(draft, 0o755)  # noqa: S103 # engines run what is in it
    launchers.fill(draft, at, programs)


def remove(place: str, named: frozenset[str]) -> list[str]:
    """Remove the installation at `place` but for the `named` versions; returns what is left."""
    _unlink(place)
    left = prune(place, named)
    if not left:
        for name in (VERSIONS, LOCK):
            _remove_empty(os.path.join(place, name))
        _remove_empty(place)
    return left


def prune(place: str, kept: frozenset[str]) -> list[str]:
    """Remove the versions at `place` that are not in `kept`; returns those that are left."""
    directory = os.path.join(place, VERSIONS)
    left = []
    for name in versions(place):
        if name in kept:
            left.append(name)
            continue
        # Renamed first: half a version has never the name of a whole one.
        gone = os.path.join(directory, f".{name}.gone")
        os.rename(os.path.join(directory, name), gone)
        shutil.rmtree(gone)
    if os.path.isdir(directory):
        for name in os.listdir(directory):
            if name.startswith("."):
                shutil.rmtree(os.path.join(directory, name))
    return left


def _link(path: str, target: str) -> None:
    """Make `path` a link to `target`, in one step; what is a link already stays."""
    if os.path.islink(path) and os.readlink(path) == target:
        return
    if os.path.lexists(path) and not os.path.islink(path):
        raise fault("GH2104", path=path)
    temporary = f"{path}.new"
    if os.path.lexists(temporary):
        os.unlink(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)


def _unlink(place: str) -> None:
    for name in (PROGRAMS, CURRENT):
        path = os.path.join(place, name)
        if os.path.islink(path):
            os.unlink(path)


def _remove_empty(path: str) -> None:
    try:
        os.unlink(path) if path.endswith(LOCK) else os.rmdir(path)
    except FileNotFoundError:
        return
    except OSError:
        return  # somebody else's things are in it


def _existing(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path
