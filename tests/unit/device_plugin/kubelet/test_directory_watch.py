# SPDX-License-Identifier: Apache-2.0
"""DirectoryWatch on real directories that are removed, replaced and renamed."""

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

Changes = list[tuple[str | None, bool]]


def changes(directories: list[Path], *steps: Callable[[], object]) -> list[Changes]:
    """Return the changes after each step, relative to the first directory's parent."""
    seen: Changes = []

    async def work() -> list[Changes]:
        watch = DirectoryWatch(map(str, directories), lambda path, made: seen.append((path, made)))
        try:
            return [await after(step) for step in steps]
        finally:
            watch.close()

    async def after(step: Callable[[], object]) -> Changes:
        seen.clear()
        step()
        # The kernel queues events within the system call: two turns of the loop read them.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        above = os.path.dirname(directories[0])
        return [(path and os.path.relpath(path, above), made) for path, made in seen]

    return asyncio.run(work())


def test_created_and_removed_entries_are_reported(tmp_path: Path) -> None:
    """Touched and written entries are not reported."""
    directory = tmp_path / "d"
    directory.mkdir()
    file = directory / "kubelet.sock"
    assert changes(
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


def test_replaced_directory_is_watched_again(tmp_path: Path) -> None:
    """The replacement is reported as an unknown change (path None)."""
    directory = tmp_path / "d"
    directory.mkdir()
    removed, made, entry, moved, entry_there, returned, entry_again = changes(
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


def test_directory_with_missing_parents_is_watched_when_created(tmp_path: Path) -> None:
    """A directory is found when the ones above it were missing, at the start or later."""
    directory = tmp_path / "a" / "b" / "c"
    first, gone, again, entry = changes(
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


def test_entry_of_nested_directories_is_reported_once(tmp_path: Path) -> None:
    """Each entry is reported once, for its directory."""
    outer, inner = tmp_path / "d", tmp_path / "d" / "e"
    inner.mkdir(parents=True)
    assert changes([outer, inner], (outer / "a").touch, (inner / "b").touch) == [
        [("d/a", True)],
        [("d/e/b", True)],
    ]


def test_entry_is_reported_by_the_name_of_each_watch(tmp_path: Path) -> None:
    """A directory that is watched by a link and by its path reports both."""
    directory, link = tmp_path / "d", tmp_path / "link"
    directory.mkdir()
    link.symlink_to(directory)
    assert changes([link], (directory / "a").touch) == [[("link/a", True)]]
    (both,) = changes([directory, link], (directory / "b").touch)
    assert sorted(both, key=str) == [("d/b", True), ("link/b", True)]


def no_watch_left(self: Inotify, path: str, mask: int) -> int:
    """Fail as the kernel does at the limit of inotify watches."""
    raise OSError(errno.ENOSPC, "no inotify watch is left", path)


def test_closed_watch_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watch that could not start leaves none either."""
    fds = len(os.listdir("/proc/self/fd"))
    assert changes([tmp_path], (tmp_path / "a").touch) == [[(f"{tmp_path.name}/a", True)]]
    monkeypatch.setattr(Inotify, "watch", no_watch_left)
    with pytest.raises(OSError, match="no inotify watch"):
        changes([tmp_path])
    assert len(os.listdir("/proc/self/fd")) == fds
