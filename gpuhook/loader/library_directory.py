# SPDX-License-Identifier: Apache-2.0
"""What ldconfig enters into the loader's cache of one directory.

ldconfig takes files and links whose names look like those of libraries. It enters each under its
SONAME, a file without one under its own name, and a link that ld(1) uses (libcuda.so) under the
link's name. Source: glibc elf/ldconfig.c, search_dir(), and sysdeps/generic/dl-is_dso.h.
"""

from __future__ import annotations

_SYSTEM = ("/lib", "/lib32", "/lib64", "/libx32")
_PRELINK = ".#prelink#"


def is_library(name: str) -> bool:
    """Return whether ldconfig looks at a file of this name."""
    return name.startswith(("lib", "ld-")) and ".so" in name and _PRELINK not in name


def entry_of_link(name: str, soname: str) -> str:
    """Return the name that ldconfig enters for the link `name` to a library with this SONAME.

    Another link than the SONAME's and that for ld(1) stands for the library itself.
    """
    if name.endswith(".so") and soname.startswith(name):
        return name
    return soname


def is_system(path: str) -> bool:
    """Return whether `path` is a directory that a distribution keeps its own libraries in.

    Its libraries have a place in the order of the image's ldconfig: no file of ours may change it.
    """
    for prefix in ("/usr/local", "/usr"):
        path = path.removeprefix(prefix)
    parent, _, name = path.rpartition("/")
    is_multiarch = parent in _SYSTEM and "-linux-" in name
    return path in _SYSTEM or is_multiarch


def other_spelling(path: bytes) -> bytes:
    """Return the path of the same file where an image merges /lib with /usr/lib."""
    return path[4:] if path.startswith(b"/usr/") else b"/usr" + path


DIRECTORY = "/usr/lib32"
MACHINE = "i386"  # as loader.cache.flags_for knows it


def is_narrow(path: str) -> bool:
    """Return whether a library at `path` is a 32-bit one."""
    return "/i386-linux-gnu/" in path or "/lib32/" in path
