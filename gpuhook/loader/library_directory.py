# SPDX-License-Identifier: Apache-2.0
"""Directories of libraries: ldconfig's entries for one, and whether it is 32-bit or a system's.

ldconfig takes files and links whose names look like those of libraries. It enters each under its
SONAME, a file without one under its own name, and a link that ld(1) uses (libcuda.so) under the
link's name. Source: glibc elf/ldconfig.c, search_dir(), and sysdeps/generic/dl-is_dso.h.
"""

from __future__ import annotations

_SYSTEM = ("/lib", "/lib32", "/lib64", "/libx32")
_PRELINK = ".#prelink#"


def is_library(name: str) -> bool:
    """Return whether ldconfig reads a file of this name."""
    return name.startswith(("lib", "ld-")) and ".so" in name and _PRELINK not in name


def entry_of_link(name: str, soname: str) -> str:
    """Return the name that ldconfig enters for the link `name` to a library with this SONAME.

    A link that is neither the SONAME's nor the one for ld(1) gets the entry of the library itself.
    """
    if name.endswith(".so") and soname.startswith(name):
        return name
    return soname


def is_system(path: str) -> bool:
    """Return whether `path` is a directory in which a distribution keeps its own libraries.

    The image's ldconfig gives its libraries a place in its order, which no file of gpuhook may
    change.
    """
    for prefix in ("/usr/local", "/usr"):
        path = path.removeprefix(prefix)
    parent, _, name = path.rpartition("/")
    is_multiarch = parent in _SYSTEM and "-linux-" in name
    return path in _SYSTEM or is_multiarch


def other_spelling(path: bytes) -> bytes:
    """Return the path of the same file in an image that merges /lib with /usr/lib."""
    return path[4:] if path.startswith(b"/usr/") else b"/usr" + path


DIRECTORY = "/usr/lib32"
MACHINE = "i386"  # as ld_cache.flags_for() knows it


def is_narrow(path: str) -> bool:
    """Return whether a library at `path` is a 32-bit one, by its directory.

    Debian and its derivatives have i386-linux-gnu, others /usr/lib32. If only the distribution can
    tell both kinds apart (Fedora's /usr/lib), containers get the 32-bit ones in DIRECTORY. Source:
    Debian's multiarch tuples; ldconfig's cache flags.
    """
    return "/i386-linux-gnu/" in path or "/lib32/" in path
