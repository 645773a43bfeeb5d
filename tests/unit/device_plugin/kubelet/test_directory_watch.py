# SPDX-License-Identifier: Apache-2.0
"""Directories that are watched through whatever happens to them, with a real kernel."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhook.device_plugin.kubelet.directory_watch import DirectoryWatch
from gpuhook.kernel.inotify import Inotify

Told = list[tuple[str | None, bool]]


def told(directories: list[Path], *steps: Callable[[], object]) -> list[Told]:
    """Return the changes after each step, relative to the first directory's parent."""
    heard: Told = []

    async def work() -> list[Told]:
        watch = DirectoryWatch(map(str, directories), lambda path, made: heard.append((path, made)))
        try:
            return [await after(step) for step in steps]
        finally:
            watch.close()

    async def after(step: Callable[[], object]) -> Told:
        heard.clear()
        step()
        # Events are there when the system call returns: two turns of the loop read them.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        above = os.path.dirname(directories[0])
        return [(path and os.path.relpath(path, above), made) for path, made in heard]

    return asyncio.run(work())


def test_entries(tmp_path: Path) -> None:
    """Entries that appear or go are reported; touched or written ones are not."""
    directory = tmp_path / "d"
    directory.mkdir()
    file = directory / "kubelet.sock"
    assert told(
        [directory],
        file.touch,
        lambda: os.utime(file),
        lambda: file.write_text("x", encoding="ascii"),
        lambda: file.chmod(0o600),
        lambda: file.rename(directory / "b"),
        (directory / "b").unlink,
        (tmp_path / "beside").touch,
    ) == [
        [("d/kubelet.sock", True)],
        [],
        [],
        [],
        [("d/kubelet.sock", False), ("d/b", True)],
        [("d/b", False)],
        [],
    ]


def test_a_directory_that_is_made_anew(tmp_path: Path) -> None:
    """A replaced directory is reported as an unknown change, then the new entries."""
    directory = tmp_path / "d"
    directory.mkdir()
    removed, made, entry, moved, entry_there, returned, entry_again = told(
        [directory],
        directory.rmdir,
        directory.mkdir,
        (directory / "a").touch,
        lambda: directory.rename(tmp_path / "aside"),
        (tmp_path / "aside" / "b").touch,
        lambda: (tmp_path / "aside").rename(directory),
        (directory / "c").touch,
    )
    assert (None, True) in removed
    assert (None, True) in made
    assert entry == [("d/a", True)]
    assert (None, True) in moved
    assert entry_there == []
    assert (None, True) in returned
    assert ("d/c", True) in entry_again


def test_parents_that_come_and_go(tmp_path: Path) -> None:
    """A directory is found when the ones above it were missing, at the start or later."""
    directory = tmp_path / "a" / "b" / "c"
    first, gone, again, entry = told(
        [directory],
        lambda: directory.mkdir(parents=True),
        lambda: shutil.rmtree(tmp_path / "a"),
        lambda: directory.mkdir(parents=True),
        (directory / "x").touch,
    )
    assert (None, True) in first
    assert (None, True) in gone
    assert (None, True) in again
    assert ("c/x", True) in entry


def test_two_directories_one_in_the_other(tmp_path: Path) -> None:
    """Each entry is reported once, for its directory."""
    outer, inner = tmp_path / "d", tmp_path / "d" / "e"
    inner.mkdir(parents=True)
    assert told([outer, inner], (outer / "a").touch, (inner / "b").touch) == [
        [("d/a", True)],
        [("d/e/b", True)],
    ]


def test_a_directory_by_another_name(tmp_path: Path) -> None:
    """Through a link it is watched by the name it was asked by; by two names, by both."""
    directory, link = tmp_path / "d", tmp_path / "link"
    directory.mkdir()
    link.symlink_to(directory)
    assert told([link], (directory / "a").touch) == [[("link/a", True)]]
    (both,) = told([directory, link], (directory / "b").touch)
    assert sorted(both, key=str) == [("d/b", True), ("link/b", True)]


def no_more(self: Inotify, path: str, mask: int) -> int:
    """Do what the kernel does where the user has no watch left."""
    raise OSError(errno.ENOSPC, "no inotify watch is left", path)


def test_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that was closed has no descriptor, also when it could not begin."""
    fds = len(os.listdir("/proc/self/fd"))
    assert told([tmp_path], (tmp_path / "a").touch) == [[(f"{tmp_path.name}/a", True)]]
    monkeypatch.setattr(Inotify, "watch", no_more)
    with pytest.raises(OSError, match="no inotify watch"):
        told([tmp_path])
    assert len(os.listdir("/proc/self/fd")) == fds
