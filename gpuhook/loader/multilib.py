# SPDX-License-Identifier: Apache-2.0
"""Which directories hold 32-bit libraries of x86 beside 64-bit ones, by their names.

Debian and its like have i386-linux-gnu, others /usr/lib32. Where a distribution has both kinds in
directories that only it can tell apart (Fedora's /usr/lib), containers are given the 32-bit ones in
DIRECTORY. Source: Debian's multiarch tuples; ldconfig's cache flags.
"""

from __future__ import annotations

DIRECTORY = "/usr/lib32"
MACHINE = "i386"  # as loader.cache.flags_for knows it


def is_narrow(path: str) -> bool:
    """Return whether a library at `path` is a 32-bit one."""
    return "/i386-linux-gnu/" in path or "/lib32/" in path
