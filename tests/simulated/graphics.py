# SPDX-License-Identifier: Apache-2.0
"""What a node for graphics has more: nodes of /dev/dri as udev keeps them, 32-bit libraries."""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.nvidia import drm
from gpuhook.vendors.nvidia.inventory import DeviceNode, Gpu, Node

MAJOR = 226
VIDEO, RENDER = 44, 105  # groups of Debian's udev rules


def with_drm(node: Node) -> Node:
    """Return the node with a card and a render node for each GPU, and udev's names for them.

    The first card is another vendor's, as on servers with a display of their own.
    """
    gpus = tuple(
        replace(gpu, drm=(f"card{number + 1}", f"renderD{number + 128}"))
        for number, gpu in enumerate(node.gpus)
    )
    own = tuple(device for gpu in gpus if gpu.lost is None for device in _devices(gpu))
    return replace(node, gpus=gpus, device_nodes=(*node.device_nodes, *own))


def _devices(gpu: Gpu) -> list[DeviceNode]:
    found = []
    for path, name in drm.paths(gpu).items():
        group = VIDEO if name.startswith("card") else RENDER
        minor = int(name.removeprefix("card").removeprefix("renderD"))
        found.append(DeviceNode(path, f"/dev/dri/{name}", MAJOR, minor, 0o660, 0, group))
    return found
