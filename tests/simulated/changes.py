# SPDX-License-Identifier: Apache-2.0
"""Changes of a simulated node that processes use: GPUs, instances and drivers come and go.

As in the kernel's file systems, unchanged entries keep their inodes and new ones have others.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from gpuhook.vendors.nvidia.inventory import dump_file
from tests.simulated import node as nodes
from tests.simulated import nvml_profile, stub_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuhook.vendors.nvidia.inventory.inventory import Node
    from tests.simulated.node import SimulatedNode

_ENTRIES = [
    "proc/driver/nvidia/gpus/*",
    "proc/driver/nvidia/capabilities/gpu*/mig/gi*",
    "proc/driver/nvidia/capabilities/gpu*/mig/gi*/ci*",
    "sys/bus/pci/devices/*",
]


def become(node: SimulatedNode, facts: Node) -> None:
    """Give the node the GPUs and the instances of `facts`; its driver remains."""
    root = Path(node.host_root)
    stub_events.rewrite(node, nvml_profile.text(facts))
    texts = nodes.proc_and_sys(facts)
    wanted = {parent for name in texts for parent in (root / name).parents}
    for pattern in _ENTRIES:
        for entry in root.glob(pattern):
            if entry.is_dir() and entry not in wanted:
                shutil.rmtree(entry)
    nodes.write_proc_and_sys(root, facts)
    nodes.write_devices(Path(node.dev_root), facts)


def without(facts: Node, indexes: Collection[int]) -> Node:
    """Return the facts without these GPUs; the others have new indices, as in NVML."""
    remaining = [gpu for gpu in facts.gpus if gpu.index not in indexes]
    gpus = tuple(replace(gpu, index=index) for index, gpu in enumerate(remaining))
    return replace(facts, gpus=gpus)


def upgrade(node: SimulatedNode, profile: str, version: str) -> None:
    """Replace the driver by this version, and load it."""
    facts = dump_file.load(profile)
    old = str(facts.driver.version)
    stub_events.take_away(node)
    shutil.rmtree(Path(node.host_root, "sys/module/nvidia"))
    for file in facts.files:
        if old in file.host_path:
            Path(node.driver_root + file.host_path).unlink()
    dump = Path(node.host_root, "newer.yaml")
    dump.write_text(dump_file.text(facts, "yaml").replace(old, version), encoding="utf-8")
    nodes.make_node(node.host_root, str(dump))
