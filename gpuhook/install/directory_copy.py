# SPDX-License-Identifier: Apache-2.0
"""Directories copied to a host as the host would have made them itself.

Only contents come along, and who may run them: owner and times are new, and so are labels of
SELinux: those of a container's file system would keep the host's engine from running the copy.
"""

from __future__ import annotations

import os
import shutil

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def make_directories(path: str) -> None:
    """Make a directory and those above it, for everybody to read whatever the umask is."""
    if os.path.isdir(path):
        return
    make_directories(os.path.dirname(path))
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    os.chmod(path, 0o755)  # noqa: S103 # engines run what is in it


def copy(source: str, target: str, left_out: AbstractSet[str] = frozenset()) -> None:
    """Make the directory `target` with what is in `source`, but for `left_out`, paths in there.

    Raises OSError, which names the file.
    """
    make_directories(target)
    for name in sorted(os.listdir(source)):
        if name in left_out:
            continue
        path, into = os.path.join(source, name), os.path.join(target, name)
        if os.path.islink(path):
            os.symlink(os.readlink(path), into)
        elif os.path.isdir(path):
            copy(
                path, into, {one[len(name) + 1 :] for one in left_out if one.startswith(f"{name}/")}
            )
        else:
            shutil.copyfile(path, into)
            is_program = os.stat(path).st_mode & 0o100
            os.chmod(into, 0o755 if is_program else 0o644)


def sync(path: str) -> None:
    """Wait until the file system of `path` has all on its disk; raises OSError.

    That one alone: sync(2) would wait for every disk and every server of the host.
    """
    from gpuhook.kernel.libc import LIBC, os_error

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if LIBC.syncfs(fd) != 0:
            raise os_error(path)
    finally:
        os.close(fd)
