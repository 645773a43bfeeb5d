# SPDX-License-Identifier: Apache-2.0
"""Locks on files: flock(2), with a deadline. The kernel releases a lock when its process ends."""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_POLL = 0.02  # seconds between two attempts


def open_lock(path: str) -> int:
    """Return a descriptor of a lock file, which is created with mode 0600; raises OSError.

    Its directory is created too. A symbolic link in place of the file is refused.
    """
    os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def is_locked(fd: int, seconds: float | None = None) -> bool:
    """Lock a descriptor and return whether that succeeded within `seconds`; None waits for ever."""
    import fcntl  # the HOT allow-list does not have it

    if seconds is None:
        fcntl.flock(fd, fcntl.LOCK_EX)
        return True
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            time.sleep(_POLL)
        else:
            return True


def share_lock(fd: int) -> None:
    """Lock a descriptor together with others that share the lock, or change its lock to that.

    It waits for a process that has the lock alone.
    """
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_SH)


class FileLock:
    """A context manager that holds the lock of the file `path` and returns its descriptor.

    If another process holds it for more than `seconds`, raises what `late` returns.
    """

    def __init__(
        self,
        path: str,
        seconds: float | None = None,
        late: Callable[[], Exception] = TimeoutError,
    ) -> None:
        self._path = path
        self._seconds = seconds
        self._late = late
        self._fd = -1

    def __enter__(self) -> int:
        self._fd = open_lock(self._path)
        has_lock = False
        try:
            has_lock = is_locked(self._fd, self._seconds)
        finally:
            if not has_lock:
                os.close(self._fd)
        if not has_lock:
            raise self._late()
        return self._fd

    def __exit__(self, *exc: object) -> None:
        os.close(self._fd)
