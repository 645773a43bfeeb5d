# SPDX-License-Identifier: Apache-2.0
"""AMD's part of `gpuhook inventory`: the driver, the GPUs and their partitions."""

from __future__ import annotations

import os
from typing import Any

from gpuhook.vendors.amd.hot.amd_words import KFD
from gpuhook.vendors.amd.inventory import amd_dump, inventory_worker
from gpuhook.vendors.inventory.vendor_inventory import (
    InventoryTable,
    VendorInventory,
    cell,
    mebibytes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode
    from gpuhook.vendors.inventory.vendor_inventory import NodePlace

_HEADERS = (
    "GPU", "NAME", "UUID", "BUS-ID", "GFX", "CUS", "MEMORY", "NUMA", "MODE", "DEVICES", "RENDER",
    "STATE",
)  # fmt: skip
_ORDER = ("NAME", "ID", "PARTITION", "MEMORY", "STATE", "DEVICES", "MODE", "UUID")
_PARTITION_HEADERS = ("DEVICE", "PARTITION", "ID", "RENDER", "CARD", "XCCS", "CUS", "MEMORY")


def read(place: NodePlace) -> VendorInventory | None:
    """Return the inventory of a node, None if the amdgpu driver is not loaded.

    A dev root without /dev/kfd is that of another vendor's driver container.
    """
    dev_root = place.dev_root or place.host_root
    has_kfd = os.path.exists(dev_root.rstrip("/") + KFD)
    dev_root = dev_root if has_kfd else place.host_root
    return of_node(inventory_worker.read(place.host_root, dev_root))


def of_document(document: dict[str, Any], file: str) -> VendorInventory | None:
    """Return the inventory in a document, None if it has none of AMD."""
    return of_node(amd_dump.of_document(document, file))


def of_node(node: AmdNode) -> VendorInventory | None:
    """Return the inventory of `node`."""
    driver = node.driver
    if driver is None:
        return None
    version = driver.version or "of the kernel"
    partitions = tuple(_partition(gpu, one) for gpu, one in node.devices() if gpu.is_divided)
    return VendorInventory(
        {amd_dump.KEY: amd_dump.section(node)},
        f"Driver amdgpu {version}, kernel {cell(driver.kernel)}",
        (
            InventoryTable(_HEADERS, tuple(map(_row, node.gpus))),
            InventoryTable(_PARTITION_HEADERS, partitions),
        ),
        _ORDER,
        tuple(one.id if gpu.is_partitioned else gpu.uuid or one.id for gpu, one in node.devices()),
        node.warnings,
        {"driver": driver.version, "gpus": len(node.gpus), "token": node.token},
    )


def _row(gpu: AmdGpu) -> tuple[str, ...]:
    first = gpu.devices[0] if gpu.devices else None
    units = [one.cu_count for one in gpu.devices if one.cu_count is not None]
    modes = [mode for mode in (gpu.compute_mode, gpu.memory_mode) if mode]
    facts = (
        gpu.index,
        gpu.name,
        gpu.uuid,
        gpu.pci_address,
        first and first.gfx,
        sum(units) if units else None,
        mebibytes(gpu.vram_bytes),
        gpu.numa_node,
        "/".join(modes) or "-",
        _indices(gpu),
        f"renderD{first.render_minor}" if first else "-",
        f"LOST: {gpu.trouble}" if gpu.trouble else "ok",
    )
    return tuple(cell(fact) for fact in facts)


def _indices(gpu: AmdGpu) -> str:
    """Return the indices of the devices of a GPU, "8-15"."""
    indices = [one.index for one in gpu.devices]
    return "-".join(map(str, dict.fromkeys((indices[0], indices[-1])))) if indices else "-"


def _partition(gpu: AmdGpu, device: AmdDevice) -> tuple[str, ...]:
    facts = (
        device.index,
        f"{gpu.index}:{device.partition}",
        device.id,
        f"renderD{device.render_minor}",
        "-" if device.card_minor is None else f"card{device.card_minor}",
        device.xcc_count,
        device.cu_count,
        mebibytes(device.memory_bytes),
    )
    return tuple(cell(fact) for fact in facts)
