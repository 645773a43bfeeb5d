# SPDX-License-Identifier: Apache-2.0
"""The driver's files below a root, as NVIDIA's container toolkit 1.20 finds them.

Written from the toolkit's behaviour, independently of gpuhook: the version in the file names in
libcuda's directory decides what belongs to the driver. Files with another version are searched in
all library directories.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_DIRECTORIES = (
    "/usr/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
)
_OWN_VERSION = re.compile(r"libnvidia-(?:nvvm70|egl-(?:gbm|wayland2?|xcb|xlib))\.so\.[0-9.]+$")
_XORG = ("nvidia/xorg", "xorg/modules/drivers", "xorg/modules/extensions")
_BINARIES = (
    "nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server", "nvidia-imex", "nvidia-imex-ctl", "nvidia-xconfig",
)  # fmt: skip
_CONFIGS = (
    "/usr/share/glvnd/egl_vendor.d/10_nvidia.json",
    "/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
    "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json",
    "/usr/share/egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xcb.json",
    "/usr/share/egl/egl_external_platform.d/20_nvidia_xlib.json",
    "/usr/share/nvidia/nvoptix.bin",
    "/usr/share/X11/xorg.conf.d/10-nvidia.conf",
    "/usr/share/X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "/etc/OpenCL/vendors/nvidia.icd",
    "/etc/vulkan/icd.d/nvidia_icd.json",
    "/etc/vulkan/icd.d/nvidia_layers.json",
    "/etc/vulkan/icd.d/nvidia_icd.x86_64.json",
    "/etc/vulkan/implicit_layer.d/nvidia_layers.json",
)
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")


@dataclass(frozen=True)
class Files:
    """Paths on the driver's own system; `links` are (target, path)."""

    root: str
    version: str
    directory: str  # libcuda's directory
    libraries: tuple[str, ...]
    binaries: tuple[str, ...]
    configs: tuple[str, ...]
    firmware: tuple[str, ...]
    sockets: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    def host(self, path: str) -> str:
        """Return the path of a file on the host, links followed inside the root."""
        return self.root.rstrip("/") + _real(self.root, path)


def find(root: str, version: str) -> Files:
    """Return the files of the driver of this version below `root`."""
    directory = next(d for d in _DIRECTORIES if Path(f"{root}{d}/libcuda.so.{version}").is_file())
    libraries = _below(root, directory, lambda name: name.endswith(f".so.{version}"))
    # Debian has libcuda in a separate directory, and libraries with other versions next to that.
    places = dict.fromkeys((directory, *_DIRECTORIES))
    libraries += [path for place in places for path in _below(root, place, _OWN_VERSION.match)]
    libraries += _below(root, f"{directory}/vdpau", lambda name: name.endswith(f".so.{version}"))
    for place in _XORG:
        own = f"{directory}/{place}"
        is_own = place.startswith("nvidia") or Path(root + own).is_dir()
        below = own if is_own else f"/usr/lib/{place}"
        wanted = ("nvidia_drv.so", f"libglxserver_nvidia.so.{version}")
        libraries += _below(root, below, lambda name, wanted=wanted: name in wanted)
    real = [path for path in libraries if not Path(root + path).is_symlink()]
    programs = [f"/usr/bin/{name}" for name in _BINARIES]
    binaries = [path for path in programs if Path(root + _real(root, path)).is_file()]
    firmware = _below(root, f"/lib/firmware/nvidia/{version}", lambda n: n.startswith("gsp"))
    return Files(
        root,
        version,
        directory,
        tuple(real),
        tuple(binaries),
        tuple(path for path in _CONFIGS if Path(root + path).is_file()),
        tuple(firmware),
        tuple(path for path in _SOCKETS if Path(root + path).is_socket()),
        tuple(_links(root, directory, version, real)),
    )


def cached(root: str) -> list[str]:
    """Return the files in the loader's cache below `root`, as libnvidia-container does.

    It reads the entries of the cache, and follows their links.
    """
    command = ["/sbin/ldconfig", "-r", root, "-p"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    paths = [line.partition(" => ")[2] for line in shown.splitlines() if " => " in line]
    return list(dict.fromkeys(_real(root, path) for path in paths))


def _real(root: str, path: str) -> str:
    """Return the target of a path for a process with the root directory `root`."""
    place = Path(f"{root.rstrip('/')}{path}")
    if not place.is_symlink():
        return path
    return _real(root, os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(place))))


def _below(root: str, directory: str, is_wanted: object) -> list[str]:
    if not Path(root + directory).is_dir() or not callable(is_wanted):
        return []
    return [f"{directory}/{n}" for n in sorted(os.listdir(root + directory)) if is_wanted(n)]


def _links(root: str, directory: str, version: str, libraries: list[str]) -> list[tuple[str, str]]:
    """Return the links in the arguments of the create-symlinks hook."""
    found: dict[str, str] = {}
    for library in libraries:
        parent, name = os.path.split(library)
        stem = name.partition(".so")[0]
        for link in sorted(os.listdir(root + parent)):
            path = Path(f"{root}{parent}/{link}")
            if path.is_symlink() and link.startswith(stem + ".so") and link != name:
                found[f"{parent}/{link}"] = os.readlink(path)
    found[f"{directory}/libcuda.so"] = "libcuda.so.1"
    found[f"{directory}/libGLX_indirect.so.0"] = f"libGLX_nvidia.so.{version}"
    found[f"{directory}/libnvidia-opticalflow.so"] = "libnvidia-opticalflow.so.1"
    if f"{directory}/libnvidia-allocator.so.{version}" in libraries:
        found[f"{directory}/gbm/nvidia-drm_gbm.so"] = "../libnvidia-allocator.so.1"
    return [(target, path) for path, target in found.items()]
