# SPDX-License-Identifier: Apache-2.0
"""A runtime tree on a host: a directory for each version, and one link that says which is used.

    <install-dir>/versions/<version>-<digest>/...
    <install-dir>/current -> versions/<version>-<digest>
    <install-dir>/bin -> current/bin

Engines and CDI specs name <install-dir>/bin, so an upgrade changes no configuration. A container
that runs names the hook of the version that it began with.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager, suppress

from gpuhook.errors import fault
from gpuhook.host.hot import file_lock
from gpuhook.install import directory_copy, launchers
from gpuhook.install.runtime_tree import DESCRIPTION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.install.runtime_tree import RuntimeTree

VERSIONS = "versions"
CURRENT = "current"
PROGRAMS = "bin"
LOCK = ".lock"
_LINKS = {PROGRAMS: f"{CURRENT}/bin"}
_NEW, _GONE = ".new", ".gone"
# The plugin's packages stay in the image, and so do launchers filled in for it.
_OF_THE_IMAGE = frozenset({"bin", "libexec", "lib/plugin"})


@contextmanager
def locked(place: str) -> Iterator[None]:
    """Hold the lock of the installation at `place`, which is made: others wait.

    What is empty at the end is removed. Raises OSError.
    """
    lock = _lock(place)
    try:
        yield
    finally:
        _tidy(place)
        os.close(lock)


def _lock(place: str) -> int:
    """Return the descriptor of the lock; one that was removed while we waited for it locks none."""
    path = os.path.join(place, LOCK)
    while True:
        directory_copy.make_directories(place)
        with suppress(FileNotFoundError):  # an uninstallation has removed all of it meanwhile
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if file_lock.is_locked(lock) and os.path.samestat(os.fstat(lock), os.lstat(path)):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def require_usable(place: str, root: str = "/") -> None:
    """Raise GH2104 for what is there and not ours, and GH2102 where no program can be put.

    `root` is that of the host: what is above it says nothing of the host.
    """
    for path in (place, os.path.join(place, VERSIONS)):
        if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
            raise fault("GH2104", path=path)
    for name in (CURRENT, *_LINKS):
        path = os.path.join(place, name)
        if os.path.lexists(path) and not os.path.islink(path):
            raise fault("GH2104", path=path)
    directory = _existing(place)
    found = os.statvfs(directory)
    if found.f_flag & os.ST_RDONLY:
        raise fault("GH2102", path=place, reason="its file system is read-only")
    if found.f_flag & os.ST_NOEXEC:
        raise fault("GH2102", path=place, reason="its file system is mounted noexec")
    open_one = _open_to_others(directory, root)
    if open_one:
        reason = f"others than root may write to {open_one}, and replace what root runs"
        raise fault("GH2102", path=place, reason=reason)


def version_directory(place: str, name: str) -> str:
    """Return the directory of the version `name` at `place`."""
    return os.path.join(place, VERSIONS, name)


def is_there(tree: RuntimeTree, place: str) -> bool:
    """Return whether the tree is installed at `place` and is the one that is used."""
    if used(place) != tree.name:
        return False
    return all(_leads(os.path.join(place, link)) == target for link, target in _LINKS.items())


def is_begun(place: str) -> bool:
    """Return whether there is anything to remove: versions, or the rest of a killed run."""
    try:
        names = os.listdir(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not names or bool({VERSIONS, LOCK} & {*names})


def used(place: str) -> str:
    """Return the name of the version that is used, "" for none."""
    directory, name = os.path.split(_leads(os.path.join(place, CURRENT)))
    return name if directory == VERSIONS and name in versions(place) else ""


def versions(place: str) -> list[str]:
    """Return the names of the versions at `place`, the newest first; what is no version is none."""
    directory = os.path.join(place, VERSIONS)
    try:
        names = [name for name in os.listdir(directory) if _is_version(directory, name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names, key=lambda name: -os.lstat(os.path.join(directory, name)).st_mtime_ns)


def copy(tree: RuntimeTree, place: str, at: str) -> bool:
    """Copy the tree to its directory at `place`, which the host calls `at`; not used so far.

    What is there is complete: a copy that was broken off begins anew. Returns whether it was
    copied; raises OSError.
    """
    directory = os.path.join(place, VERSIONS)
    final = os.path.join(directory, tree.name)
    is_new = tree.name not in versions(place)
    if is_new:
        directory_copy.make_directories(directory)
        draft = os.path.join(directory, f".{tree.name}{_NEW}")
        _remove(draft)
        _remove(final)
        try:
            directory_copy.copy(tree.path, draft, _OF_THE_IMAGE)
            launchers.fill(draft, f"{at}/{VERSIONS}/{tree.name}", f"{at}/{PROGRAMS}")
            directory_copy.sync(draft)
            os.rename(draft, final)
        except BaseException:
            _remove(draft)
            raise
    os.utime(final)  # the newest one
    return is_new


def use(name: str, place: str) -> None:
    """Have the links lead to the version `name`, each in one step."""
    for link, target in {CURRENT: f"{VERSIONS}/{name}", **_LINKS}.items():
        _link(os.path.join(place, link), target)


def remove(place: str, kept: frozenset[str]) -> list[str]:
    """Remove what is at `place` but for the versions in `kept`; returns those that are left.

    The links stay if the version is kept that they lead to: somebody calls it by them.
    """
    if used(place) not in kept:
        for name in (PROGRAMS, CURRENT):
            path = os.path.join(place, name)
            if os.path.islink(path):
                os.unlink(path)
    return prune(place, kept)


def prune(place: str, kept: frozenset[str]) -> list[str]:
    """Remove the versions at `place` that are not in `kept`; returns those that are left."""
    directory = os.path.join(place, VERSIONS)
    left = []
    for name in versions(place):
        if name in kept:
            left.append(name)
            continue
        # Renamed first: half a version has never the name of a whole one.
        gone = os.path.join(directory, f".{name}{_GONE}")
        _remove(gone)
        os.rename(os.path.join(directory, name), gone)
    if os.path.isdir(directory):
        for name in os.listdir(directory):
            if name.startswith(".") and name.endswith((_NEW, _GONE)):
                _remove(os.path.join(directory, name))
    return left


def _is_version(directory: str, name: str) -> bool:
    path = os.path.join(directory, name)
    if name.startswith(".") or os.path.islink(path):
        return False
    return os.path.isfile(os.path.join(path, DESCRIPTION))


def _leads(path: str) -> str:
    """Return where a link leads, "" for what is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _link(path: str, target: str) -> None:
    """Make `path` a link to `target`, in one step; what is a link already stays."""
    if _leads(path) == target:
        return
    if os.path.lexists(path) and not os.path.islink(path):
        raise fault("GH2104", path=path)
    temporary = f"{path}{_NEW}"
    _remove(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)


def _remove(path: str) -> None:
    """Remove what is at `path`, whatever that is, and no more than that."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _tidy(place: str) -> None:
    """Remove what a killed run has left of a link, and what is empty, the lock last."""
    for name in (PROGRAMS, CURRENT):
        if os.path.islink(os.path.join(place, name + _NEW)):
            os.unlink(os.path.join(place, name + _NEW))
    with suppress(OSError):  # there are versions, or somebody else's things
        os.rmdir(os.path.join(place, VERSIONS))
    with suppress(OSError):
        if os.listdir(place) == [LOCK]:
            os.unlink(os.path.join(place, LOCK))
            os.rmdir(place)


def _open_to_others(directory: str, root: str) -> str:
    """Return the directory by which others than root can replace what is in this one, "" for none.

    Above it the sticky bit keeps them from what is not their own.
    """
    end, above = os.stat(root), 0
    while True:
        found = os.stat(directory)
        is_open = found.st_mode & stat.S_IWOTH and not found.st_mode & above
        if is_open or found.st_uid not in (0, os.geteuid()):
            return directory
        if os.path.samestat(found, end) or directory in ("/", ""):
            return ""
        directory, above = os.path.dirname(directory), stat.S_ISVTX


def _existing(path: str) -> str:
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path
