# SPDX-License-Identifier: Apache-2.0
"""Nodes that are larger than the shipped profiles."""

from __future__ import annotations

from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.simulated import mig_node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, Node

INSTANCES = 7  # the most that a GPU has


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


def partitioned(count: int = 16) -> Node:
    """Return a node whose GPUs have seven MIG instances each."""
    facts = dump_file.load("a100-mig")
    gpus = tuple(_partitioned(facts.gpus[0], index) for index in range(count))
    shared = [node for node in facts.device_nodes if not node.path[11:].isdecimal()]
    shared = [node for node in shared if "nvidia-caps/" not in node.path]
    first = next(node for node in facts.device_nodes if node.path == "/dev/nvidia0")
    own = [
        replace(first, path=path, host_path=path, minor=index)
        for index in range(count)
        for path in [f"/dev/nvidia{index}"]
    ]
    capabilities = mig_node.device_nodes(gpus, facts.majors["nvidia-caps"])
    return replace(facts, gpus=gpus, device_nodes=(*shared, *own, *capabilities))


def _partitioned(first: Gpu, index: int) -> Gpu:
    return replace(
        first,
        index=index,
        minor=index,
        uuid=f"GPU-{uuid5(NAMESPACE_OID, str(index))}",
        pci_bus_id=f"00000000:{0x10 + index:02X}:00.0",
        numa_node=index // 8,
        instances=tuple(
            mig_node.instance(
                index, n, f"MIG-{uuid5(NAMESPACE_OID, f'{index}:{n}')}", "1g.5gb", 7 + n, 0
            )
            for n in range(INSTANCES)
        ),
    )
