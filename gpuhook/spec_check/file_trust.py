# SPDX-License-Identifier: Apache-2.0
"""Who but root may change what root's engines read or run."""

from __future__ import annotations

import os
import stat

_GROUP, _OTHERS = 0o020, 0o002


def writers(found: os.stat_result) -> str:
    """Return in words who else than root may write a file or directory, "" for nobody.

    A directory with the sticky bit may be written by all, but what is root's stays there.
    """
    if found.st_uid not in (0, os.geteuid()):
        return f"the user {found.st_uid}, whose it is"
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return ""
    if found.st_mode & _OTHERS:
        return f"everybody (its mode is {stat.S_IMODE(found.st_mode):04o})"
    if found.st_mode & _GROUP and found.st_gid:
        return f"the group {found.st_gid} (its mode is {stat.S_IMODE(found.st_mode):04o})"
    return ""


def loose(path: str) -> tuple[str, str] | None:
    """Return (what others than root may write, who) of a path and the directories above it.

    Links are followed: what counts is the file that is opened. Raises OSError where the path leads
    nowhere.
    """
    place = os.path.realpath(path, strict=True)
    while True:
        who = writers(os.stat(place))
        if who:
            return place, who
        above = os.path.dirname(place)
        if above == place:
            return None
        place = above
