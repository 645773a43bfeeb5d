# SPDX-License-Identifier: Apache-2.0
"""The GPUs and MIG instances of this node for showing who uses them, whatever tells of them.

The driver, where it is asked and answers; else what generate-cdi has noted; else a dump.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError
from gpuhook.host import documents
from gpuhook.host.hot import files, state
from gpuhook.usage.gpu_readings import UsageDevice
from gpuhook.vendors.nvidia.hot import node_json, vocabulary
from gpuhook.vendors.nvidia.inventory import dump

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node

_MAX_SIZE = 16 << 20


def of_node(node: Node) -> tuple[UsageDevice, ...]:
    """Return the devices of a node of which only the facts are known, not what uses it."""
    return tuple(one for gpu in node.gpus for one in _of_gpu(gpu))


def noted() -> tuple[UsageDevice, ...]:
    """Return the devices that generate-cdi has noted of this node; none where it has not."""
    try:
        if not state.usable(os.lstat(node_json.path())):
            return ()
        node = dump.from_dict(documents.parse_json(files.read(node_json.path(), _MAX_SIZE)))
    except (OSError, GpuhookError, ValueError, KeyError, TypeError, AttributeError):
        return ()  # somebody else's file, or an older one
    return of_node(node)


def by_node(devices: Iterable[UsageDevice], noted: dict[str, str]) -> dict[str, str]:
    """Return the UUID of each device by the device node that only its holders have.

    `noted` is what generate-cdi has noted, which the driver knows better.
    """
    told = list(devices)
    split = {one.node for one in told if one.is_split}
    found = {node: uuid for node, uuid in noted.items() if node not in split}
    found |= {one.node: one.uuid for one in told if one.node and one.uuid and not one.is_split}
    return found


def _of_gpu(gpu: Gpu) -> Iterator[UsageDevice]:
    uuid = gpu.uuid or ""
    yield UsageDevice(
        uuid,
        uuid,
        str(gpu.index),
        name=gpu.name or "",
        node="" if gpu.minor is None else f"/dev/nvidia{gpu.minor}",
        total=gpu.memory_bytes,
        is_split=gpu.mig_mode == "enabled",
        lost=gpu.lost or "",
    )
    for instance in gpu.instances:
        yield _of_instance(gpu, instance)


def _of_instance(gpu: Gpu, instance: MigInstance) -> UsageDevice:
    minor = instance.compute_instance_minor
    return UsageDevice(
        instance.uuid,
        gpu.uuid or "",
        f"{gpu.index}:{instance.index}",
        name=gpu.name or "",
        profile=instance.profile or "",
        node="" if minor is None else vocabulary.capability_node(minor),
        total=instance.memory_bytes,
        lost=instance.trouble or "",
    )
