# SPDX-License-Identifier: Apache-2.0
"""The GPUs and MIG instances of a node without their usage.

Without the driver, they come from the inventory that generate-cdi recorded, or from a dump.
"""

from __future__ import annotations

import os
from contextlib import suppress

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files, state
from gpuhook.vendors.nvidia.hot import node_json, vocabulary
from gpuhook.vendors.nvidia.inventory import dump
from gpuhook.vendors.usage.usage_device import UsageDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

_MAX_SIZE = 16 << 20


def of_node(node: Node | None) -> tuple[UsageDevice, ...]:
    """Return the devices of a node without their usage, () for None."""
    return tuple(
        device
        for gpu in (node.gpus if node else ())
        for device in (
            gpu_device(gpu),
            *(instance_device(gpu, one, one.compute_instance_minor) for one in gpu.instances),
        )
    )


def recorded_node() -> Node | None:
    """Return the node that generate-cdi recorded, None without a usable record.

    A record of another user or of an older version is not usable.
    """
    path = node_json.path()
    with suppress(OSError, GpuhookError, ValueError, KeyError, TypeError, AttributeError):
        if state.usable(os.lstat(path)):
            return dump.from_dict(documents.parse_json(files.read(path, _MAX_SIZE)))
    return None


def gpu_device(gpu: Gpu) -> UsageDevice:
    """Return a GPU without its usage."""
    return UsageDevice(
        gpu.uuid or "",
        gpu.uuid or "",
        str(gpu.index),
        name=gpu.name or "",
        node="" if gpu.minor is None else f"/dev/nvidia{gpu.minor}",
        total=gpu.memory_bytes,
        is_split=gpu.mig_mode == "enabled",
        lost=gpu.lost or "",
    )


def instance_device(gpu: Gpu, instance: MigInstance, minor: int | None) -> UsageDevice:
    """Return a MIG instance without its usage; `minor` is that of its capability node."""
    return UsageDevice(
        instance.uuid,
        gpu.uuid or "",
        f"{gpu.index}:{instance.index}",
        name=gpu.name or "",
        profile=instance.profile or "",
        node="" if minor is None else vocabulary.capability_node(minor),
        total=instance.memory_bytes,
        has_percents=False,
        lost=instance.trouble or "",
    )
