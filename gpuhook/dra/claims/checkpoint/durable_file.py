# SPDX-License-Identifier: Apache-2.0
"""Files that several processes replace, in containers with PIDs of their own.

host.hot.files names temporary files by PID, and removes those of dead processes: a process of
another container looks dead. So the names here are random.
"""

from __future__ import annotations

import os
from contextlib import suppress

from gpuhook.host.hot import files

_PREFIX, _SUFFIX = ".dra-", ".tmp"


def replace(path: str, data: bytes, mode: int) -> None:
    """Replace the file `path` atomically, and wait for the disk; raises OSError."""
    directory = os.path.dirname(path)
    temporary = os.path.join(directory, f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    fd = os.open(temporary, flags, 0o600)
    try:
        try:
            files.write_whole(fd, data)
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    sync(directory)


def keep_copy(path: str, copy: str) -> None:
    """Make `copy` another name of the file `path`, if that exists; raises OSError."""
    temporary = os.path.join(os.path.dirname(copy), f"{_PREFIX}{os.urandom(8).hex()}{_SUFFIX}")
    with suppress(FileNotFoundError):
        os.link(path, temporary, follow_symlinks=False)
        os.rename(temporary, copy)


def sync(directory: str) -> None:
    """Wait until the names in a directory are on the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove_temporary(directory: str) -> None:
    """Remove what killed processes left. No other process may write there."""
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                with suppress(OSError):
                    os.unlink(os.path.join(directory, name))
