# SPDX-License-Identifier: Apache-2.0
"""Nodes that are larger than the shipped profiles."""

from __future__ import annotations

from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Node


def doubled(node: Node) -> Node:
    """Return a node with twice as many GPUs."""
    count = len(node.gpus)
    more = tuple(
        replace(
            gpu,
            index=gpu.index + count,
            minor=number + count,
            uuid=f"GPU-{uuid5(NAMESPACE_OID, gpu.uuid or '')}",
            pci_bus_id=f"00000000:{0x80 + number:02X}:00.0",
        )
        for number, gpu in enumerate(node.gpus)
    )
    first = next(device for device in node.device_nodes if device.path == "/dev/nvidia0")
    nodes = tuple(
        replace(first, path=path, host_path=path, minor=gpu.minor or 0)
        for gpu in more
        for path in [f"/dev/nvidia{gpu.minor}"]
    )
    return replace(node, gpus=node.gpus + more, device_nodes=node.device_nodes + nodes)
