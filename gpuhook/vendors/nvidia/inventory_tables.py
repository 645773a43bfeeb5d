# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's part of `gpuhook inventory`: the driver, the GPUs and the MIG instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.inventory import dump, dump_file
from gpuhook.vendors.vendor_inventory import InventoryTable, VendorInventory, cell, mebibytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance, Node
    from gpuhook.vendors.vendor_inventory import NodePlace

_HEADERS = (
    "INDEX", "NAME", "UUID", "MINOR", "BUS-ID", "ARCH", "CC", "MEMORY", "NUMA", "MIG",
    "MODE", "SLICE", "STATE",
)  # fmt: skip
_ORDER = ("NAME", "PROFILE", "MEMORY", "STATE", "MIG", "UUID")
_INSTANCE_HEADERS = ("MIG", "PROFILE", "UUID", "GI", "CI", "MEMORY", "SMS", "CAPS", "STATE")


def read(place: NodePlace) -> VendorInventory:
    """Return the inventory of a node with a driver; raises what discover.node() raises."""
    from gpuhook.vendors.nvidia import discover

    roots = discover.roots(
        place.driver_root,
        place.dev_root,
        place.host_root,
        nvml_library=place.library,
        library_search_paths=place.library_search_paths,
    )
    return of_node(_with_time_slices(discover.node(roots, require_nodes=False)))


def of_document(document: dict[str, Any], file: str) -> VendorInventory | None:
    """Return the inventory in a document, None if it has none of NVIDIA."""
    return of_node(dump_file.of_document(document, file)) if dump.is_in(document) else None


def of_node(node: Node) -> VendorInventory:
    """Return the inventory of `node`."""
    driver = node.driver
    module = driver.module_version or "not loaded"
    instances = tuple(_instance(gpu, one) for gpu in node.gpus for one in gpu.instances)
    part = dump_file.lines(dump.as_dict(node))
    del part["schema"]
    return VendorInventory(
        part,
        f"Driver {cell(driver.version)}, kernel module {module}, CUDA {cell(driver.cuda)}",
        (
            InventoryTable(_HEADERS, tuple(map(_row, node.gpus))),
            InventoryTable(_INSTANCE_HEADERS, instances),
        ),
        _ORDER,
        tuple(_uuids(node)),
        node.warnings,
        facts(node),
    )


def facts(node: Node) -> dict[str, Any]:
    """Return the facts of a node for the log."""
    return {
        "driver": node.driver.version,
        "nvml": node.driver.nvml,
        "gpus": len(node.gpus),
        "device_nodes": len(node.device_nodes),
        "files": len(node.files),
        "fingerprint": node.fingerprint,
    }


def _with_time_slices(node: Node) -> Node:
    """Return the node with the time slices of its GPUs, unchanged if nvidia-smi fails.

    No other command needs them, and nvidia-smi takes as long as all other calls together.
    """
    from gpuhook.vendors.nvidia.driver import driver_locations
    from gpuhook.vendors.nvidia.gpu import compute_policy

    program = driver_locations.program_path(node, compute_policy.PROGRAM)
    try:
        slices = compute_policy.time_slices(compute_policy.Smi(program, node.driver.nvml or ""))
    except GpuhookError:
        return node
    return replace(
        node, gpus=tuple(replace(gpu, time_slice=slices.get(gpu.index)) for gpu in node.gpus)
    )


def _uuids(node: Node) -> list[str]:
    """Return the UUIDs by which containers can request GPUs and MIG instances."""
    found = [gpu.uuid for gpu in node.gpus if gpu.uuid and not gpu.lost]
    return found + [one.uuid for gpu in node.gpus for one in gpu.instances]


def _row(gpu: Gpu) -> tuple[str, ...]:
    facts = (
        gpu.index,
        gpu.name,
        gpu.uuid,
        gpu.minor,
        gpu.pci_bus_id,
        gpu.architecture,
        gpu.compute_capability,
        mebibytes(gpu.memory_bytes),
        gpu.numa_node,
        gpu.mig_mode,
        gpu.compute_mode,
        gpu.time_slice,
        f"LOST: {gpu.lost}" if gpu.lost else "ok",
    )
    return tuple(cell(fact) for fact in facts)


def _instance(gpu: Gpu, instance: MigInstance) -> tuple[str, ...]:
    facts = (
        f"{gpu.index}:{instance.index}",
        instance.profile,
        instance.uuid,
        instance.gpu_instance,
        instance.compute_instance,
        mebibytes(instance.memory_bytes),
        instance.multiprocessors,
        f"{cell(instance.gpu_instance_minor)},{cell(instance.compute_instance_minor)}",
        f"BROKEN: {instance.trouble}" if instance.trouble else "ok",
    )
    return tuple(cell(fact) for fact in facts)
