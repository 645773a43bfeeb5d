# SPDX-License-Identifier: Apache-2.0
"""The roots of drivers that are not installed into the root of their node."""

from __future__ import annotations

import os
import shutil
import stat

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.warm import nvml_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node

# The driver container of NVIDIA's GPU operator; GKE's installer.
OPERATOR, GKE = "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"
OTHER_ROOTS = (OPERATOR, GKE)
# NixOS keeps all files in its store, and has links to those of the current driver.
NIXOS_LIBRARIES = "/run/opengl-driver/lib"


def roots_with_driver(search_paths: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the driver roots of this host that have a libnvidia-ml.so.1, the preferred one first.

    "/" excludes all others. `search_paths` are directories below each root. A driver container may
    start later than this program, so callers must not cache the result. Directories that another
    user could have made are skipped: programs of root load the library.
    """
    if _has_driver("/", search_paths):
        return ("/",)
    return tuple(
        root for root in OTHER_ROOTS if is_trusted(root) and _has_driver(root, search_paths)
    )


def is_trusted(path: str) -> bool:
    """Return whether only root and the caller can replace the file at an absolute path."""
    return all(map(_is_safe, (*_with_parents(path), *_with_parents(os.path.realpath(path)))))


def _with_parents(path: str) -> list[str]:
    found = [path]
    while found[-1] != os.path.dirname(found[-1]):
        found.append(os.path.dirname(found[-1]))
    return found


def _is_safe(directory: str) -> bool:
    """Return whether other users can neither change a directory nor replace root's files in it."""
    try:
        found = os.stat(directory)
    except OSError:
        return False
    is_open = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not found.st_mode & stat.S_ISVTX
    return found.st_uid in (0, os.geteuid()) and not is_open


def _has_driver(root: str, search_paths: tuple[str, ...]) -> bool:
    try:
        nvml_library.find(root, search_paths=search_paths)
    except GpuhookError:
        return False
    return True


def program_path(node: Node, name: str) -> str:
    """Return the driver's own program `name`, else the one in PATH, else the name itself."""
    for file in node.files:
        if os.path.basename(file.container_path) == name:
            return file.host_path
    return shutil.which(name) or name
