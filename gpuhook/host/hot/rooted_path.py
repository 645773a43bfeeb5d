# SPDX-License-Identifier: Apache-2.0
"""Paths inside a root directory, by name: links are followed inside the root, never out of it.

For trees that are as trusted as the host, such as a driver's. A tree that a container can change is
opened by descriptor: kernel/openat2.py, apply/rootfs/safe_walk.py.
"""

from __future__ import annotations

import errno
import os

from gpuhook.host.hot.files import MAX_LINKS


def resolve(root: str, path: str, *, must_exist: bool = False) -> str:
    """Return the path inside `root` that `path` leads to: absolute, without links, "/" for root.

    Components that do not exist are kept as they are; with `must_exist`, they are a
    FileNotFoundError. Raises OSError (ELOOP) for more than MAX_LINKS links.
    """
    pending = path.split("/")[::-1]
    done: list[str] = []
    links = 0
    while pending:
        name = pending.pop()
        if name in ("", "."):
            continue
        if name == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink(os.path.join(root, *done, name))
        except FileNotFoundError:
            if must_exist:
                raise
            done.append(name)
            continue
        except OSError:  # not a link
            done.append(name)
            continue
        links += 1
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if target.startswith("/"):
            done.clear()
        pending += target.split("/")[::-1]
    return "/" + "/".join(done)
