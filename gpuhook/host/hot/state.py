# SPDX-License-Identifier: Apache-2.0
"""The directory of gpuhook's state on a node, and which state files can be trusted.

Everything in it may vanish at any moment and is made again.
"""

from __future__ import annotations

import os
import stat

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files

DIRECTORY = "/run/gpuhook"  # root's
DIRECTORY_ENV = "GPUHOOK_STATE_DIR"
HOST_ROOT_ENV = "GPUHOOK_HOST_ROOT"
PROGRAM_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def directory() -> str:
    """Return the state directory: /run/gpuhook for root, else the user's own."""
    chosen = os.environ.get(DIRECTORY_ENV)
    if chosen:
        return chosen
    return os.path.join(user_directory(), "gpuhook") if is_rootless() else DIRECTORY


def program_dirs(launcher: str) -> tuple[str, ...]:
    """Return the directories of gpuhook's programs: that of the `launcher` first."""
    return (os.path.dirname(os.path.realpath(launcher)), *PROGRAM_DIRS)


def find_program(launcher: str, name: str) -> str:
    """Return the path of the first program `name` in program_dirs(), "" without one."""
    for directory in program_dirs(launcher):
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK):
            return path
    return ""


def is_rootless() -> bool:
    """Return whether this user is not the host's root, also if a user namespace maps it to root.

    Only a process with an XDG_RUNTIME_DIR is examined: engines of root have none. Source:
    user_namespaces(7), the initial namespace maps all ids to themselves.
    """
    if os.geteuid() != 0:
        return True
    if not os.environ.get("XDG_RUNTIME_DIR"):
        return False
    try:
        with open("/proc/self/uid_map", "rb") as file:
            return file.read(256).split() != [b"0", b"0", b"4294967295"]
    except OSError:
        return False


def usable(found: os.stat_result) -> bool:
    """Return whether a state file can be trusted.

    It must be a regular file that root or this user owns and no other user can write.
    """
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid in (0, os.geteuid())
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def read(path: str, limit: int) -> bytes | None:
    """Return the content of a state file, None if it cannot be read or trusted."""
    try:
        return files.read(path, limit) if usable(os.lstat(path)) else None
    except (OSError, GpuhookError):
        return None


def host_root() -> str:
    """Return the directory with the host's /proc and /sys, "/" unless the environment names one."""
    return os.environ.get(HOST_ROOT_ENV) or "/"


def runtime_root(low_level: str) -> str:
    """Return the state root that a low-level runtime uses without --root."""
    name = os.path.basename(low_level)
    return os.path.join(user_directory(), name) if is_rootless() else f"/run/{name}"


def user_directory() -> str:
    """Return the directory of a user's sockets and state (XDG Base Directory Specification)."""
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
