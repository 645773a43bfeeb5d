# SPDX-License-Identifier: Apache-2.0
"""The directories of distributions' driver packages, compared with those of NVIDIA's installer.

A layout maps a path of the profile (flat multiarch) to the path inside the driver root, and adds
the links of its packages.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tests.simulated.profiles import LIBRARY_DIR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import DriverFile

Layout = Literal["flat", "debian", "lib64", "driver-container", "gke"]
LAYOUTS: tuple[Layout, ...] = ("flat", "debian", "lib64", "driver-container", "gke")

# Below the directory of the simulated node.
DRIVER_ROOTS: dict[Layout, str] = {
    "flat": "",
    "debian": "",
    "lib64": "",
    "driver-container": "run/nvidia/driver",
    "gke": "home/kubernetes/bin/nvidia",
}
_CURRENT = f"{LIBRARY_DIR}/nvidia/current"


@dataclass(frozen=True)
class Alternative:
    """A path that Debian's update-alternatives links to `target`, by way of /etc/alternatives."""

    path: str
    name: str
    target: str


def placed(layout: Layout, path: str) -> str:
    """Return the path in `layout` of the profile's directory entry `path`."""
    if layout == "lib64":
        moved = path.replace(f"{LIBRARY_DIR}/", "/usr/lib64/", 1)
        return moved.replace("/usr/lib/xorg/", "/usr/lib64/xorg/", 1)
    if layout == "gke":
        for before, after in (
            (f"{LIBRARY_DIR}/", "/lib64/"),
            ("/usr/bin/", "/bin/"),
            ("/lib/firmware/", "/firmware/"),
            ("/etc/vulkan/", "/vulkan/"),
        ):
            if path.startswith(before):
                return after + path[len(before) :]
    return path


def placed_file(layout: Layout, file: DriverFile) -> str:
    """Return the path of the file itself in `layout`."""
    path = file.container_path
    if layout != "debian":
        return placed(layout, path)
    directory, _, name = path.rpartition("/")
    if file.kind == "binary" or directory.startswith("/usr/lib/xorg"):
        return f"/usr/lib/nvidia/current/{name}"
    has_alternative = file.soname is not None and file.soname != name
    if has_alternative and "-egl-" not in name:
        return f"{_CURRENT}/{name}"
    return path


def alternatives(file: DriverFile, at: str) -> list[Alternative]:
    """Return the alternatives that Debian's packages register for `file` at the path `at`."""
    if at == file.container_path:
        return []
    directory, _, name = file.container_path.rpartition("/")
    if file.soname is None or file.kind == "plugin":
        shown = file.soname or name
        return [Alternative(f"{directory}/{shown}", f"nvidia--{shown}", at)]
    return [
        Alternative(
            f"{directory}/{file.soname}",
            f"nvidia--{file.soname}-x86_64-linux-gnu",
            f"{_CURRENT}/{file.soname}",
        )
    ]
