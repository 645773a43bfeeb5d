# SPDX-License-Identifier: Apache-2.0
"""Where gpuhook keeps its state on a node, and which state files can be trusted.

Everything there may vanish at any moment and is made again.
"""

from __future__ import annotations

import os
import stat

DIRECTORY = "/run/gpuhook"  # root's
DIRECTORY_ENV = "GPUHOOK_STATE_DIR"
HOST_ROOT_ENV = "GPUHOOK_HOST_ROOT"
PROGRAM_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


def directory() -> str:
    """Return the state directory: /run/gpuhook for root, else one of the user's own."""
    chosen = os.environ.get(DIRECTORY_ENV)
    if chosen:
        return chosen
    return os.path.join(_user_run(), "gpuhook") if is_rootless() else DIRECTORY


def is_rootless() -> bool:
    """Return whether this user is not the host's root, even where a user namespace calls it so.

    Only who has an XDG_RUNTIME_DIR is looked at: engines of root have none.
    Source: user_namespaces(7), the initial namespace maps all ids to themselves.
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
    """Return whether a state file may be believed.

    It must be a regular file of root's or our own that nobody else can write.
    """
    return (
        stat.S_ISREG(found.st_mode)
        and found.st_uid in (0, os.geteuid())
        and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def host_root() -> str:
    """Return where the host's /proc and /sys are: "/" but for simulated nodes and containers."""
    return os.environ.get(HOST_ROOT_ENV) or "/"


def runtime_root(low_level: str) -> str:
    """Return the state root that a low-level runtime uses when --root names none."""
    name = os.path.basename(low_level)
    return os.path.join(_user_run(), name) if is_rootless() else f"/run/{name}"


def _user_run() -> str:
    return os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
