# SPDX-License-Identifier: Apache-2.0
"""A directory of the host that no process may open or change while an attack runs."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuhook.kernel.inotify import Event, Inotify
from tests.contract import roots
from tests.contract.installation import LIBRARIES
from tests.contract.test_hostile import Canary

_ALL = 0x00000FFF  # inotify(7): IN_ALL_EVENTS
_MADE = 0x4000013C  # IN_ATTRIB, IN_OPEN, IN_CLOSE, IN_CREATE, IN_ISDIR
_FIXED = (1, 1, 14)  # the first runc that resolves mount points without a race
# What gpuhook writes in a container; the host has such files, too.
_WRITTEN = ["/etc", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/dev", "/usr/bin"]
_WRITTEN += ["/usr/lib", LIBRARIES, "/etc/OpenCL", "/etc/nvidia", "/etc/gpuhook", "/lib/firmware"]


@contextmanager
def untouched(canary: Canary, *allowed: Path) -> Iterator[None]:
    """Assert that the block opens and changes no file of the canary, and changes no host file.

    The files `allowed` of the canary may be opened. Contents, modes, owners, times and inodes are
    compared, and inotify reports each open file, also one that is only read.
    """
    host, identities = _host_files(), _identities(canary.path)
    with Inotify() as inotify:
        directories = [canary.path, *(path for path in canary.path.rglob("*") if path.is_dir())]
        names = {inotify.watch(str(path), _ALL): path for path in directories}
        yield
        events = [names[event.watch] / event.name for event in _all_events(inotify)]
        assert [path for path in events if path not in allowed] == []
    assert _identities(canary.path) == identities
    assert _host_files() == host
    canary.assert_unchanged()


@contextmanager
def watched(canary: Canary, engine: str) -> Iterator[None]:
    """Assert the same as untouched(), where a runtime mounts below a root that is attacked.

    A runc before 1.1.14 may open files of the host as mount points, make empty ones, and set modes
    (CVE-2024-45310), also without gpuhook. With it nothing else happens: no content is read or
    changed, and all have the modes that they had.
    """
    if engine != "runc" or _version() >= _FIXED:
        with untouched(canary):
            yield
        return
    host = _host_files()
    with Inotify() as inotify:
        for path in (canary.path, *(path for path in canary.path.rglob("*") if path.is_dir())):
            inotify.watch(str(path), _ALL)
        yield
        seen = [
            (hex(event.mask), event.name) for event in _all_events(inotify) if event.mask & ~_MADE
        ]
        assert not seen, seen
    assert _host_files() == host
    found = roots.listing(canary.path)
    assert {path: found.get(path) for path in canary.before} == canary.before
    new = (canary.path / path for path in found.keys() - canary.before.keys())
    assert [path for path in new if path.is_file() and path.read_bytes()] == []


def _version() -> tuple[int, ...]:
    said = subprocess.run(["runc", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", said)[:3]))


def _all_events(inotify: Inotify) -> Iterator[Event]:
    while events := inotify.read():
        assert not any(event.overflowed for event in events)
        yield from events


def _identities(directory: Path) -> dict[str, tuple[int, ...]]:
    found = {str(path): path.lstat() for path in [directory, *directory.rglob("*")]}
    return {
        path: (one.st_ino, one.st_mode, one.st_nlink, one.st_mtime_ns, one.st_ctime_ns)
        for path, one in found.items()
    }


def _host_files() -> dict[str, object]:
    """Return what would change if gpuhook wrote to the host's files of those names."""
    found: dict[str, object] = {}
    for path in _WRITTEN:
        if not os.path.lexists(path):
            found[path] = None
            continue
        names = [name for name in _names(path) if "nvidia" in name or "gpuhook" in name]
        is_file = os.path.isfile(path)
        found[path] = (names, os.lstat(path).st_ino, os.lstat(path).st_mtime_ns if is_file else 0)
    return found


def _names(path: str) -> list[str]:
    return sorted(os.listdir(path)) if os.path.isdir(path) else []
