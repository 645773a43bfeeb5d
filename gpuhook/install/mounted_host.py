# SPDX-License-Identifier: Apache-2.0
"""The root of a host, mounted into a container: paths in it, with the host's own links."""

from __future__ import annotations

import errno
import os

from gpuhook.errors import fault

_MOST_LINKS = 40  # as many as the kernel follows


def require(root: str) -> None:
    """Raise GH2100 where `root` is no root of a host."""
    if not os.path.isdir(root):
        raise fault("GH2100", root=root, reason="it is no directory")
    if not any(os.path.isdir(os.path.join(root, name)) for name in ("etc", "usr", "proc")):
        raise fault("GH2100", root=root, reason="it has no etc, usr and proc")


def inside(root: str, path: str) -> str:
    """Return where the host's `path` is as seen from here; the path need not be there.

    Links are the host's: an absolute one begins at `root`, and none leads out of it. Raises OSError
    for too many of them.
    """
    waiting = [part for part in path.split("/") if part][::-1]
    done: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part == ".":
            continue
        if part == "..":
            del done[-1:]
            continue
        here = os.path.join(root, *done, part)
        if not os.path.islink(here):
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = os.readlink(here)
        if target.startswith("/"):
            done.clear()
        waiting.extend(part for part in reversed(target.split("/")) if part)
    return os.path.join(root, *done)
