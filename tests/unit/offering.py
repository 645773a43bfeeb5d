# SPDX-License-Identifier: Apache-2.0
"""Nodes and configurations for the tests of offered resources."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuhook.device_plugin.config.configuration import Configuration, Flags
from gpuhook.device_plugin.config.gpuhook_section import Own
from gpuhook.device_plugin.config.sharing_section import TIME_SLICING, SharedResource, Sharing
from gpuhook.device_plugin.offer.resources import Offer, offered
from gpuhook.vendors.catalogue import vendor_of
from gpuhook.vendors.nvidia.inventory import dump_file
from gpuhook.vendors.nvidia.inventory.inventory import DeviceNode, Gpu, MigInstance, Node
from gpuhook.vendors.vendor_part import VendorPart

T4 = dump_file.load("t4")
H100 = dump_file.load("h100x8")
GPU = "nvidia.com/gpu"


def part_of(node: Node) -> VendorPart:
    """Return the part of a node with these GPUs."""
    return vendor_of(node).inventory_part(node)


def with_gpus(node: Node, *gpus: Gpu) -> Node:
    return replace(node, gpus=gpus)


def changed(node: Node, index: int, **fields: Any) -> Node:
    """Return `node` with some facts of one GPU changed."""
    gpus = [replace(gpu, **fields) if gpu.index == index else gpu for gpu in node.gpus]
    return replace(node, gpus=tuple(gpus))


def instances(gpu: int, *profiles: str | None, **fields: Any) -> tuple[MigInstance, ...]:
    return tuple(
        MigInstance(
            index=number,
            uuid=f"MIG-{gpu}{number}000000-5717-562f-bd58-bb8cdbe27a0f",
            gpu_instance=number + 7,
            compute_instance=0,
            profile=profile,
            memory_bytes=10 << 30,
            gpu_instance_minor=100 * gpu + number,
            compute_instance_minor=100 * gpu + number + 50,
            **fields,
        )
        for number, profile in enumerate(profiles)
    )


def divided(node: Node, index: int, *profiles: str | None, **fields: Any) -> Node:
    """Return `node` with one GPU in MIG mode, with an instance of each profile, and its nodes."""
    parts = instances(index, *profiles, **fields)
    minors = [(part.gpu_instance_minor, part.compute_instance_minor) for part in parts]
    paths = [f"/dev/nvidia-caps/nvidia-cap{minor}" for pair in minors for minor in pair]
    root = node.dev_root.rstrip("/")
    nodes = [DeviceNode(path, root + path, 240, number) for number, path in enumerate(paths)]
    node = replace(node, device_nodes=(*node.device_nodes, *nodes))
    return changed(node, index, mig_mode="enabled", instances=parts)


def configured(
    *entries: SharedResource,
    strategy: str = TIME_SLICING,
    mig: str = "none",
    exclude: tuple[str, ...] = (),
    by_default: bool = False,
    refuses: bool = False,
) -> Configuration:
    return Configuration(
        flags=Flags(mig_strategy=mig),
        sharing=Sharing(strategy if entries else "none", by_default, refuses, entries),
        own=Own(exclude_devices=exclude),
    )


def ids(offer: Offer) -> dict[str, list[str]]:
    return {resource.name: [unit.id for unit in resource.units] for resource in offer.resources}


def indices(offer: Offer) -> dict[str, list[str]]:
    """Return the index of each unit's device, followed by a slash and the replica if it has one."""
    return {
        resource.name: [
            unit.device.index + ("" if unit.replica is None else f"/{unit.replica}")
            for unit in resource.units
        ]
        for resource in offer.resources
    }


def offer(node: Node, *entries: SharedResource, **fields: Any) -> Offer:
    return offered(node, configured(*entries, **fields))


def only_warning(offer: Offer) -> str:
    """Return the one warning of an offer."""
    (text,) = offer.warnings
    return text
