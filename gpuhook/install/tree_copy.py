# SPDX-License-Identifier: Apache-2.0
"""The runtime trees on a host: a directory for each version, and a link to the current one.

    <install-dir>/versions/<version>-<digest>/...
    <install-dir>/current -> versions/<version>-<digest>
    <install-dir>/bin -> current/bin

Engines and CDI specs name <install-dir>/bin, so an upgrade changes no configuration. A running
container names the hook of the version with which it started.
"""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import contextmanager, suppress

from gpuhook.errors import fault
from gpuhook.host.hot import file_lock
from gpuhook.install import mounted_host, runtime_tree
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
# The plugin's packages and the launchers for the image are not copied.
_OF_THE_IMAGE = frozenset({"bin", "libexec", "lib/plugin"})


@contextmanager
def locked(place: str) -> Iterator[None]:
    """Create the directory `place` and hold its lock. Other runs wait.

    Empty directories are removed at the end. Raises OSError.
    """
    lock = _lock(place)
    try:
        yield
    finally:
        _tidy(place)
        os.close(lock)


def _lock(place: str) -> int:
    """Return the descriptor of the lock file, which still exists once it is locked."""
    path = os.path.join(place, LOCK)
    while True:
        mounted_host.make_directories(place)
        with suppress(FileNotFoundError):  # an uninstallation removed the directory meanwhile
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                if file_lock.is_locked(lock) and os.path.samestat(os.fstat(lock), os.lstat(path)):
                    return lock
            except BaseException:
                os.close(lock)
                raise
            os.close(lock)


def require_usable(place: str, root: str = "/") -> None:
    """Raise GH2104 for files of another owner, GH2102 if programs cannot be installed.

    `root` is the host's root: directories above it do not belong to the host.
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
        reason = f"users other than root can write to {open_one}, and replace root's programs"
        raise fault("GH2102", path=place, reason=reason)


def version_directory(place: str, name: str) -> str:
    """Return the directory of the version `name` at `place`."""
    return os.path.join(place, VERSIONS, name)


def is_current(tree: RuntimeTree, place: str) -> bool:
    """Return whether the tree is installed at `place`, and is the current version."""
    if current_version(place) != tree.name:
        return False
    return all(_target(os.path.join(place, link)) == target for link, target in _LINKS.items())


def exists(place: str) -> bool:
    """Return whether there are versions, or files of a killed run."""
    try:
        names = os.listdir(place)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not names or bool({VERSIONS, LOCK} & {*names})


def current_version(place: str) -> str:
    """Return the name of the current version, "" for none."""
    directory, name = os.path.split(_target(os.path.join(place, CURRENT)))
    return name if directory == VERSIONS and name in versions(place) else ""


def versions(place: str) -> list[str]:
    """Return the names of the versions at `place`, the newest first."""
    directory = os.path.join(place, VERSIONS)
    try:
        names = [name for name in os.listdir(directory) if _is_version(directory, name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(names, key=lambda name: -os.lstat(os.path.join(directory, name)).st_mtime_ns)


def copy(tree: RuntimeTree, place: str, at: str) -> bool:
    """Copy the tree to its directory at `place`, the host's `at`; it is not the current one yet.

    An existing version is complete: an interrupted copy has another name. Returns whether it was
    copied. Raises OSError.
    """
    directory = os.path.join(place, VERSIONS)
    final = os.path.join(directory, tree.name)
    is_new = tree.name not in versions(place)
    if is_new:
        mounted_host.make_directories(directory)
        draft = os.path.join(directory, f".{tree.name}{_NEW}")
        _remove(draft)
        _remove(final)
        try:
            mounted_host.copy_directory(tree.path, draft, _OF_THE_IMAGE)
            runtime_tree.write_launchers(draft, f"{at}/{VERSIONS}/{tree.name}", f"{at}/{PROGRAMS}")
            mounted_host.sync(draft)
            os.rename(draft, final)
        except BaseException:
            _remove(draft)
            raise
    os.utime(final)  # the newest one
    return is_new


def use(name: str, place: str) -> None:
    """Make `name` the current version; each link is replaced atomically."""
    for link, target in {CURRENT: f"{VERSIONS}/{name}", **_LINKS}.items():
        _link(os.path.join(place, link), target)


def remove(place: str, kept: frozenset[str]) -> list[str]:
    """Remove the files at `place` except the versions in `kept`; returns those that remain.

    The links remain if their version is kept: containers call it by them.
    """
    if current_version(place) not in kept:
        for name in (PROGRAMS, CURRENT):
            path = os.path.join(place, name)
            if os.path.islink(path):
                os.unlink(path)
    return prune(place, kept)


def prune(place: str, kept: frozenset[str]) -> list[str]:
    """Remove the versions at `place` that are not in `kept`; returns those that remain."""
    directory = os.path.join(place, VERSIONS)
    left = []
    for name in versions(place):
        if name in kept:
            left.append(name)
            continue
        # Renamed first: an incomplete version never has the name of a complete one.
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


def _target(path: str) -> str:
    """Return the target of a link, "" if it is not a link."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _link(path: str, target: str) -> None:
    """Make `path` a link to `target`, atomically. Raises GH2104 if it is not a link."""
    if _target(path) == target:
        return
    if os.path.lexists(path) and not os.path.islink(path):
        raise fault("GH2104", path=path)
    temporary = f"{path}{_NEW}"
    _remove(temporary)
    os.symlink(target, temporary)
    os.rename(temporary, path)


def _remove(path: str) -> None:
    """Remove a file, a link or a directory."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _tidy(place: str) -> None:
    """Remove the temporary links of a killed run, and empty directories, the lock last."""
    for name in (PROGRAMS, CURRENT):
        if os.path.islink(os.path.join(place, name + _NEW)):
            os.unlink(os.path.join(place, name + _NEW))
    with suppress(OSError):  # it is not empty
        os.rmdir(os.path.join(place, VERSIONS))
    with suppress(OSError):
        if os.listdir(place) == [LOCK]:
            os.unlink(os.path.join(place, LOCK))
            os.rmdir(place)


def _open_to_others(directory: str, root: str) -> str:
    """Return the directory in which other users than root can replace files, "" for none.

    In a parent, the sticky bit prevents that.
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
