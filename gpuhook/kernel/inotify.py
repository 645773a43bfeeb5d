# SPDX-License-Identifier: Apache-2.0
"""inotify(7): events of the entries of directories.

The descriptor does not block, so that an event loop can wait for it. Sources: inotify(7),
include/uapi/linux/inotify.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct

from gpuhook.kernel.libc import LIBC, os_error

CREATE = 0x00000100
DELETE = 0x00000200
MOVED_FROM = 0x00000040
MOVED_TO = 0x00000080
CLOSE_WRITE = 0x00000008
DELETE_SELF = 0x00000400
MOVE_SELF = 0x00000800
# Bits that the kernel adds.
UNMOUNT = 0x00002000
OVERFLOW = 0x00004000
IGNORED = 0x00008000
# A flag of a watch.
ONLY_DIRECTORIES = 0x01000000

_HEADER = struct.Struct("iIII")  # struct inotify_event: wd, mask, cookie, len
_BUFFER = 1 << 16  # any event fits: the header and a name of 255 bytes
_START_REASONS = {
    errno.EMFILE: "raise fs.inotify.max_user_instances, or the process's limit of open files",
}
_WATCH_REASONS = {
    errno.ENOSPC: "no inotify watch is left for this user: raise fs.inotify.max_user_watches",
}

LIBC.inotify_init1.argtypes = (ctypes.c_int,)
LIBC.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
LIBC.inotify_rm_watch.argtypes = (ctypes.c_int, ctypes.c_int)


class Event:
    """One event: its watch, its bits, and a name in the directory ("": the directory itself)."""

    __slots__ = ("mask", "name", "watch")

    def __init__(self, watch: int, mask: int, name: str = "") -> None:
        self.watch = watch
        self.mask = mask
        self.name = name

    def __repr__(self) -> str:
        return f"Event({self.watch}, {self.mask:#x}, {self.name!r})"

    @property
    def overflowed(self) -> bool:
        """Whether events were lost here: anything may have happened, in every watch."""
        return bool(self.mask & OVERFLOW)

    @property
    def ignored(self) -> bool:
        """Whether this watch has ended: it was removed, or its inode is gone."""
        return bool(self.mask & IGNORED)


class Inotify:
    """An inotify instance. `fd` is readable when there are events."""

    def __init__(self) -> None:
        """Raise OSError: EMFILE if the user has too many instances."""
        self.fd = LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise os_error("inotify", _START_REASONS)

    def __enter__(self) -> Inotify:  # noqa: PYI034  # Self is of Python 3.11
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def watch(self, path: str, mask: int) -> int:
        """Watch `path` for the events of `mask`, and return the number of the watch.

        Watching an inode again returns the same number and replaces the mask. Raises OSError with
        the path.
        """
        number = LIBC.inotify_add_watch(self.fd, os.fsencode(path), mask)
        if number < 0:
            raise os_error(path, _WATCH_REASONS)
        return int(number)

    def unwatch(self, number: int) -> None:
        """End a watch; one that has already ended is ignored."""
        LIBC.inotify_rm_watch(self.fd, number)

    def read(self) -> list[Event]:
        """Return the pending events, [] without any; never waits."""
        try:
            return decode(os.read(self.fd, _BUFFER))
        except BlockingIOError:
            return []

    def close(self) -> None:
        """End all watches. Closing twice has no effect."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def decode(data: bytes) -> list[Event]:
    """Return the events in data from an inotify descriptor."""
    events = []
    at = 0
    while at + _HEADER.size <= len(data):
        watch, mask, _cookie, length = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        name = os.fsdecode(data[at : at + length].rstrip(b"\0"))
        at += length
        events.append(Event(watch, mask, name))
    return events
