# SPDX-License-Identifier: Apache-2.0
"""Files that processes of several containers replace, each of which has its own PIDs.

host.hot.files names temporary files by PID, and removes those of dead processes: a process of
another container looks dead. So the names here are random.
"""

from __future__ import annotations

import os
from contextlib import suppress

from gpuhook.host.hot import files

_SUFFIX = ".tmp"


def replace(path: str, data: bytes, mode: int) -> None:
    """Replace the file `path` atomically, and wait for the disk; raises OSError with a path."""
    temporary = _temporary(path)
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
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.filename is None:  # as of a full disk
            error.filename = path
        raise
    sync(os.path.dirname(path))


def keep_copy(path: str, copy: str) -> None:
    """Make `copy` another name of the file `path`, if that exists; raises OSError."""
    temporary = _temporary(copy)
    with suppress(FileNotFoundError):
        os.link(path, temporary, follow_symlinks=False)
        os.rename(temporary, copy)
        os.unlink(temporary)  # rename(2) does nothing if the copy is the same file already


def sync(directory: str) -> None:
    """Wait until the names in a directory are on the disk."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _temporary(path: str) -> str:
    return f"{path}.{os.urandom(8).hex()}{_SUFFIX}"


def remove_temporary(path: str) -> None:
    """Remove what killed processes left of the files whose paths begin with `path`.

    No process may write one of them meanwhile.
    """
    directory, prefix = os.path.split(path)
    with suppress(OSError):
        for name in os.listdir(directory):
            if name.startswith(prefix) and name.endswith(_SUFFIX):
                with suppress(OSError):
                    os.unlink(os.path.join(directory, name))
