# SPDX-License-Identifier: Apache-2.0
"""The root of a host, mounted into a container: paths in it, with the host's own links."""

from __future__ import annotations

import os

from gpuhook.errors import fault
from gpuhook.host.hot import rooted_path


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
    return (root.rstrip("/") + rooted_path.resolve(root, path)).rstrip("/") or "/"
