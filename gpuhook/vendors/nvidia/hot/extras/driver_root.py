# SPDX-License-Identifier: Apache-2.0
"""The root directory of a driver; links are followed inside it, never out of it.

A driver container's tree, or one below a host's /home, has absolute links that mean its own root.
Paths called "inside" start with "/" at that root.

Loaded only for a container that requests devices in addition to its GPUs.
"""

from __future__ import annotations

import os
import posixpath

from gpuhook.host.hot import rooted_path

# GKE's own device plugin mounts its driver directory there, and PATH and LD_LIBRARY_PATH of CUDA
# images name it.
PREFIX_IN_CONTAINERS = "/usr/local/nvidia"
_SYSTEM = ("/etc/", "/lib/", "/run/", "/usr/", "/var/")


class DriverRoot:
    """The directory `path` of the host, which may be "/"."""

    __slots__ = ("_is_prefix", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._is_prefix: bool | None = None

    def host(self, inside: str) -> str:
        """Return the path on the host of `inside`, links not followed."""
        return posixpath.normpath(self.path.rstrip("/") + "/" + inside.lstrip("/"))

    def inside(self, path: str) -> str:
        """Return `path` as seen inside; it may begin with the root."""
        path = posixpath.normpath("/" + path.lstrip("/"))
        top = self.path.rstrip("/")
        if top and (path == top or path.startswith(top + "/")):
            return path[len(top) :] or "/"
        return path

    def real(self, inside: str) -> str | None:
        """Return `inside` with every link followed inside, None for a dangling one."""
        if "\0" in inside:  # from a kernel's file or a loader cache: no path has one
            return None
        try:
            real = rooted_path.resolve(self.path, inside, must_exist=True)
        except OSError:
            return None
        return real if os.path.lexists(self.host(real)) else None

    def directory(self, inside: str) -> str | None:
        """Return the directory `inside` with links followed, None if it is not a directory."""
        real = self.real(inside)
        return real if real and os.path.isdir(self.host(real)) else None

    def names(self, inside: str) -> list[str]:
        """Return the sorted names in the directory `inside`, [] if it is not readable."""
        real = self.real(inside)
        try:
            return sorted(os.listdir(self.host(real))) if real else []
        except OSError:
            return []

    @property
    def is_prefix(self) -> bool:
        """Whether this is an installation prefix with lib64 and bin (GKE), not a system's root.

        A system has /lib64 as a link, or its dynamic loader in there.
        """
        if self._is_prefix is None:
            self._is_prefix = self._looks_like_prefix()
        return self._is_prefix

    def _looks_like_prefix(self) -> bool:
        names = self.names("/lib64")
        return (
            self.path.rstrip("/") != ""
            and not os.path.islink(self.host("/lib64"))
            and any(name.startswith("libcuda.so.") for name in names)
            and not any(name.startswith(("ld-", "ld64.")) for name in names)
        )

    def container(self, inside: str) -> str:
        """Return where a container finds `inside`: at the same path, or below a fixed prefix."""
        if self.is_prefix and not inside.startswith(_SYSTEM):
            return PREFIX_IN_CONTAINERS + inside
        return inside


def place(root: str, path: str) -> str | None:
    """Return the host path of `path` in `root`, links followed inside; None if there is none."""
    if not root.rstrip("/"):
        return path if os.path.exists(path) else None
    within = DriverRoot(root)
    real = within.real(path)
    return None if real is None else within.host(real)
