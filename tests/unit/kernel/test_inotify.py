# SPDX-License-Identifier: Apache-2.0
"""inotify, with the kernel that runs the tests."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuhook.kernel import inotify
from gpuhook.kernel.inotify import Event, Inotify

ENTRIES = inotify.CREATE | inotify.DELETE | inotify.MOVED_FROM | inotify.MOVED_TO
IN_ISDIR = 0x40000000
ITSELF = inotify.DELETE_SELF | inotify.MOVE_SELF


def _facts(event: Event) -> tuple[int, int, str]:
    return event.watch, event.mask, event.name


@pytest.fixture
def instance() -> Iterator[Inotify]:
    with Inotify() as made:
        yield made


def test_changes_of_entries_are_events(instance: Inotify, tmp_path: Path) -> None:
    """Each change of an entry is one event with its name; a move is two."""
    watch = instance.watch(str(tmp_path), ENTRIES)
    assert instance.read() == []
    (tmp_path / "a").touch()
    (tmp_path / "a").rename(tmp_path / "é b")
    (tmp_path / "é b").unlink()
    (tmp_path / "below").mkdir()
    made, left, came, gone, below = instance.read()
    assert _facts(made) == (watch, inotify.CREATE, "a")
    assert (left.mask, left.name) == (inotify.MOVED_FROM, "a")
    assert (came.mask, came.name) == (inotify.MOVED_TO, "é b")
    assert _facts(gone) == (watch, inotify.DELETE, "é b")
    assert _facts(below) == (watch, inotify.CREATE | IN_ISDIR, "below")


def test_name_that_is_not_utf8(instance: Inotify, tmp_path: Path) -> None:
    """It is decoded with the file system's encoding."""
    instance.watch(str(tmp_path), ENTRIES)
    name = b"\xff" * 255
    Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).touch()
    assert [os.fsencode(event.name) for event in instance.read()] == [name]


def test_removal_of_the_directory_ends_its_watch(instance: Inotify, tmp_path: Path) -> None:
    """It is reported as an event."""
    directory = tmp_path / "d"
    directory.mkdir()
    watch = instance.watch(str(directory), ENTRIES | ITSELF)
    directory.rmdir()
    gone, ended = instance.read()
    assert _facts(gone) == (watch, inotify.DELETE_SELF, "")
    assert ended.ignored
    assert not gone.ignored


def test_one_inode_has_one_watch(instance: Inotify, tmp_path: Path) -> None:
    """A second watch, also by another name, is the same one; a removed one gets no events."""
    (tmp_path / "link").symlink_to(tmp_path)
    watch = instance.watch(str(tmp_path), ENTRIES)
    assert instance.watch(str(tmp_path / "link"), ENTRIES) == watch
    instance.unwatch(watch)
    instance.unwatch(watch)
    (tmp_path / "a").touch()
    assert [event.ignored for event in instance.read()] == [True]


def test_queue_overflow_is_reported(instance: Inotify, tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text(encoding="ascii"))
    if limit > 1 << 17:
        pytest.skip(f"this kernel keeps {limit} events")
    instance.watch(str(tmp_path), ENTRIES)
    one, other = str(tmp_path / "a"), str(tmp_path / "b")
    Path(one).touch()
    for _ in range(limit // 2 + 2):
        os.rename(one, other)
        one, other = other, one
    events: list[Event] = []
    while more := instance.read():
        events += more
    assert [event.overflowed for event in events].count(True) == 1
    assert events[-1].overflowed
    assert events[-1].watch == -1


def test_event_loop_waits_for_the_descriptor(instance: Inotify, tmp_path: Path) -> None:

    async def named() -> str:
        loop = asyncio.get_running_loop()
        told: asyncio.Future[str] = loop.create_future()
        instance.watch(str(tmp_path), ENTRIES)
        loop.add_reader(instance.fd, lambda: told.set_result(instance.read()[0].name))
        loop.call_soon((tmp_path / "a").touch)
        try:
            return await asyncio.wait_for(told, 30)
        finally:
            loop.remove_reader(instance.fd)

    assert asyncio.run(named()) == "a"


def test_unwatchable_path_is_an_error(instance: Inotify, tmp_path: Path) -> None:
    """The error for a missing directory, or for a file in its place, has the path."""
    with pytest.raises(FileNotFoundError, match="none"):
        instance.watch(str(tmp_path / "none"), ENTRIES)
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        instance.watch(str(tmp_path / "file"), ENTRIES | inotify.ONLY_DIRECTORIES)


def test_missing_instance_is_an_error() -> None:
    """If the kernel has no more instances, nothing has to be closed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError, match="inotify") as raised:
            Inotify()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert raised.value.errno == errno.EMFILE


def test_close_twice(tmp_path: Path) -> None:
    """A closed instance has no descriptor; a second close has no effect."""
    made = Inotify()
    fd = made.fd
    made.close()
    made.close()
    assert not os.path.exists(f"/proc/self/fd/{fd}")
