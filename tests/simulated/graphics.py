# SPDX-License-Identifier: Apache-2.0
"""Additions to a node for graphics: nodes of /dev/dri as udev makes them, 32-bit libraries."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.nvidia.devices import drm
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, DriverFile, Gpu, Link, Node

MAJOR = 226
NARROW = "/usr/lib/i386-linux-gnu"
# From NVIDIA's 32-bit packages: the libraries that programs open, and their dependencies.
_NARROW = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvcuvid": "libnvcuvid.so.1",
    "libGLX_nvidia": "libGLX_nvidia.so.0",
    "libEGL_nvidia": "libEGL_nvidia.so.0",
    "libnvidia-glcore": None,
    "libnvidia-tls": None,
}
_NARROW_ICD = "/etc/vulkan/icd.d/nvidia_icd.i686.json"
VIDEO, RENDER = 44, 105  # groups of Debian's udev rules


def with_drm(node: Node) -> Node:
    """Return the node with a card and a render node for each GPU, and udev's names for them.

    The first card is another vendor's, as on servers with their own display.
    """
    gpus = tuple(
        replace(gpu, drm=(f"card{number + 1}", f"renderD{number + 128}"))
        for number, gpu in enumerate(node.gpus)
    )
    own = tuple(device for gpu in gpus if gpu.lost is None for device in _devices(gpu))
    return replace(node, gpus=gpus, device_nodes=(*node.device_nodes, *own))


def _devices(gpu: Gpu) -> list[DeviceNode]:
    nodes = []
    for path, name in drm.paths(gpu).items():
        group = VIDEO if name.startswith("card") else RENDER
        minor = int(name.removeprefix("card").removeprefix("renderD"))
        nodes.append(DeviceNode(path, f"/dev/dri/{name}", MAJOR, minor, 0o660, 0, group))
    return nodes


def with_32_bit(node: Node) -> Node:
    """Return the node with Debian's 32-bit packages of its driver."""
    version = node.driver.version
    files = [_narrow(f"{NARROW}/{stem}.so.{version}", name) for stem, name in _NARROW.items()]
    files.append(DriverFile("config", _NARROW_ICD, _NARROW_ICD))
    links = (
        Link(f"{NARROW}/libGLX_indirect.so.0", f"libGLX_nvidia.so.{version}"),
        Link(f"{NARROW}/libcuda.so", "libcuda.so.1"),
    )
    return replace(
        node,
        files=(*node.files, *files),
        links=(*node.links, *links),
        library_dirs=(*node.library_dirs, NARROW),
    )


def _narrow(path: str, soname: str | None) -> DriverFile:
    return DriverFile("library", path, path, soname or path.rpartition("/")[2])
