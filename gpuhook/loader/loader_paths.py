# SPDX-License-Identifier: Apache-2.0
"""The container paths of the loader's files."""

from __future__ import annotations

CACHE = "/etc/ld.so.cache"
MAX_CACHE = 16 << 20
# ldconfig's configuration: its own file, and gpuhook's, which it reads first and last.
MAIN = "/etc/ld.so.conf"
FIRST = "/etc/ld.so.conf.d/00-gpuhook.conf"
LAST = "/etc/ld.so.conf.d/zz-gpuhook.conf"
FRONT = "/etc/gpuhook/lib"  # links to libraries of the driver that the image has, too


def paths() -> list[str]:
    """Return the container paths that gpuhook may write for the loader, or below which it may."""
    return [CACHE, MAIN, FIRST, LAST, FRONT.rpartition("/")[0]]
