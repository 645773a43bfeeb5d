# SPDX-License-Identifier: Apache-2.0
"""AMD's devices in ResourceSlices, with the names and attributes of AMD's DRA driver.

A partitioned GPU is not a device: its partitions are, and they do not overlap. Source:
ROCm/k8s-gpu-dra-driver.
"""

from __future__ import annotations

from gpuhook.vendors.amd.plugin import amd_resources
from gpuhook.vendors.plugin.dra_device import (
    DraDevice,
    DraDevices,
    known_attributes,
    pci_attributes,
    semantic_version,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdDriver, AmdGpu, AmdNode
    from gpuhook.vendors.plugin.dra_device import Attribute


def dra_devices(node: AmdNode, host_root: str | None) -> DraDevices:
    """Return the GPUs and partitions of a node."""
    return DraDevices(
        {
            device.id: DraDevice(
                _name(device),
                (gpu.pci_address, device.partition),
                known_attributes(_facts(node.driver, gpu, device, host_root)),
                _chip(device),
            )
            for gpu, device in node.devices()
        }
    )


def _name(device: AmdDevice) -> str:
    numbers = (device.card_minor, device.render_minor)
    return "-".join(("gpu", *(str(number) for number in numbers if number is not None)))


def _facts(
    driver: AmdDriver | None, gpu: AmdGpu, device: AmdDevice, host_root: str | None
) -> dict[str, Attribute | None]:
    version = driver.version if driver is not None else None
    return {
        "type": "amdgpu-partition" if gpu.is_divided else "amdgpu",
        "uuid": None if gpu.is_divided else gpu.uuid,
        "parentUUID": gpu.uuid if gpu.is_divided else None,
        "productName": gpu.name,
        "architecture": device.gfx,
        "family": gpu.family,
        "deviceID": f"0x{gpu.device_id}" if gpu.device_id else None,
        "driverVersion": semantic_version(version),
        "driverVersionFull": version,
        "partitionProfile": amd_resources.profile(gpu),
        "partition": device.partition if gpu.is_divided else None,
        "index": device.index,
        "cardIndex": device.card_minor,
        "renderIndex": device.render_minor,
        "numaNode": None if gpu.numa_node is None or gpu.numa_node < 0 else gpu.numa_node,
        **pci_attributes(host_root, gpu.pci_address, gpu.numa_node),
    }


def _chip(device: AmdDevice) -> dict[str, int]:
    numbers = {"computeUnits": device.cu_count, "simdUnits": device.simd_count}
    return {name: number for name, number in numbers.items() if number is not None}
