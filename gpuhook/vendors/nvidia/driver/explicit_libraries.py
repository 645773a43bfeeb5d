# SPDX-License-Identifier: Apache-2.0
"""Libraries beside the driver's that NVIDIA's toolkit can be told to give: glvnd's and a few more.

They are of no driver version, and most images for graphics have their own, so that they are given
only on request (feature flag enable-explicit-driver-libraries). The list is the toolkit's.
"""

from __future__ import annotations

import posixpath

from gpuhook.vendors.nvidia.driver import driver_libraries

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.driver.driver_libraries import Libraries
    from gpuhook.vendors.nvidia.driver.libcuda import Libcuda
    from gpuhook.vendors.nvidia.hot.driver_root import DriverRoot

STEMS = (
    "libEGL",
    "libGL",
    "libGLESv1_CM",
    "libGLESv2",
    "libGLX",
    "libGLdispatch",
    "libOpenCL",
    "libOpenGL",
    "libnvidia-api",
    "libnvidia-egl-xcb",
    "libnvidia-egl-xlib",
)


def add(found: Libraries, root: DriverRoot, libcuda: Libcuda) -> None:
    """Add those that are in the library directories of the driver, each from the first of them."""
    held = {posixpath.basename(file.container_path).partition(".so")[0] for file in found.files}
    for stem in STEMS:
        if stem not in held:
            _add(found, root, libcuda, stem)


def _add(found: Libraries, root: DriverRoot, libcuda: Libcuda, stem: str) -> None:
    for directory in libcuda.directories:
        names = [name for name in root.names(directory) if f"{name}.".startswith(f"{stem}.so.")]
        # Behind its links, so that the container gets the file under its own name.
        for real in dict.fromkeys(root.real(f"{directory}/{name}") for name in names):
            if real and driver_libraries.take(found, root, libcuda, real):
                return
