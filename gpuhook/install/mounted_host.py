# SPDX-License-Identifier: Apache-2.0
"""The root of a host, mounted into a container: paths in it, and directories copied to it.

Only contents and execute permissions are copied. Owner, times and SELinux labels are new: with the
labels of a container's file system, the host's engine could not execute the copy.
"""

from __future__ import annotations

import os
import shutil

from gpuhook.errors import fault
from gpuhook.host.hot import rooted_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet


def require_host(root: str) -> None:
    """Raise GH2100 if `root` is not the root of a host."""
    if not os.path.isdir(root):
        raise fault("GH2100", root=root, reason="it is not a directory")
    if not any(os.path.isdir(os.path.join(root, name)) for name in ("etc", "usr", "proc")):
        raise fault("GH2100", root=root, reason="it has no etc, usr and proc")


def inside(root: str, path: str) -> str:
    """Return the host's `path` as seen from this process; the path may not exist.

    Links are resolved as on the host: an absolute one begins at `root`, and none leads out of it.
    Raises OSError for too many links.
    """
    return (root.rstrip("/") + rooted_path.resolve(root, path)).rstrip("/") or "/"


def make_directories(path: str) -> None:
    """Create a directory and its parents, readable by all users with any umask."""
    if os.path.isdir(path):
        return
    make_directories(os.path.dirname(path))
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
        return
    os.chmod(path, 0o755)  # noqa: S103 # engines run the programs in it


def copy_directory(source: str, target: str, left_out: AbstractSet[str] = frozenset()) -> None:
    """Create the directory `target` with the content of `source`, without the paths `left_out`.

    Raises OSError with the file's name.
    """
    make_directories(target)
    for name in sorted(os.listdir(source)):
        if name in left_out:
            continue
        path, into = os.path.join(source, name), os.path.join(target, name)
        if os.path.islink(path):
            os.symlink(os.readlink(path), into)
        elif os.path.isdir(path):
            copy_directory(
                path, into, {one[len(name) + 1 :] for one in left_out if one.startswith(f"{name}/")}
            )
        else:
            shutil.copyfile(path, into)
            is_program = os.stat(path).st_mode & 0o100
            os.chmod(into, 0o755 if is_program else 0o644)


def sync(path: str) -> None:
    """Flush the file system of `path` to its disk. Raises OSError.

    sync(2) would wait for every disk and every file server of the host.
    """
    from gpuhook.kernel.libc import LIBC, os_error

    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if LIBC.syncfs(fd) != 0:
            raise os_error(path)
    finally:
        os.close(fd)
