# SPDX-License-Identifier: Apache-2.0
"""Where a driver is that is not installed into the root of its node."""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia import nvml_library

# The driver container of NVIDIA's GPU operator; GKE's installer.
OPERATOR, GKE = "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"
OTHER_ROOTS = (OPERATOR, GKE)
# NixOS keeps everything in its store, and has links to what the system of now is made of.
NIXOS_LIBRARIES = "/run/opengl-driver/lib"
NIXOS_PROGRAMS = ("/run/current-system/sw/bin", "/run/wrappers/bin")
# What the toolkit container of the operator installs.
OPERATOR_TOOLKIT = "/usr/local/nvidia/toolkit"


def roots_with_driver(search_paths: tuple[str, ...] = ()) -> tuple[str, ...]:
    """Return the driver roots of this host that have a libnvidia-ml.so.1, the one to use first.

    "/" excludes all others. `search_paths` are directories below each root. A driver container
    may start later than this program, so the answer must not be kept.
    """
    if _has_driver("/", search_paths):
        return ("/",)
    return tuple(root for root in OTHER_ROOTS if _has_driver(root, search_paths))


def _has_driver(root: str, search_paths: tuple[str, ...]) -> bool:
    try:
        nvml_library.find(root, search_paths=search_paths)
    except GpuhookError:
        return False
    return True
