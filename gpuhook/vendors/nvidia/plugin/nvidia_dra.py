# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's devices in ResourceSlices, with the names and attributes of NVIDIA's DRA driver.

A GPU in MIG mode is not a device, since no claim can have it as a whole: its instances are.
Source: kubernetes-sigs/dra-driver-nvidia-gpu, release 0.5.
"""

from __future__ import annotations

from gpuhook.vendors.nvidia.spec.device_selection import is_divided
from gpuhook.vendors.plugin.dra_device import (
    DraDevice,
    DraDevices,
    known_attributes,
    label,
    pci_attributes,
    semantic_version,
)
from gpuhook.vendors.plugin.vendor_device import bus_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.inventory.inventory import Driver, Gpu, MigInstance, Node
    from gpuhook.vendors.plugin.dra_device import Attribute

_WORDS = {"geforce": "GeForce", "nvs": "NVS"}  # of brands, as NVIDIA's driver writes them
# NVIDIA's names of the parts of a GPU, by the field of an instance.
_CHIP = {
    "multiprocessors": "multiprocessors",
    "copy_engines": "copyEngines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegs": "jpegEngines",
    "ofas": "ofaEngines",
}
# Compute instances of one GPU instance share its memory and engines.
_OWN_OF_COMPUTE_INSTANCE = ("multiprocessors",)


def dra_devices(node: Node, host_root: str | None) -> DraDevices:
    """Return the GPUs and instances of a node."""
    devices: dict[str, DraDevice] = {}
    sets: dict[str, dict[str, int]] = {}
    for gpu in node.gpus:
        facts = _gpu_facts(node.driver, gpu, host_root)
        if is_divided(gpu):
            for instance in gpu.instances:
                devices[instance.uuid] = _instance(gpu, instance, facts)
                _add_counters(sets, devices[instance.uuid])
        elif gpu.uuid:
            own: dict[str, Attribute | None] = {"type": "gpu", "uuid": gpu.uuid}
            attributes = known_attributes(own | facts)
            devices[gpu.uuid] = DraDevice(_gpu_name(gpu), _place(gpu), attributes)
    return DraDevices(devices, sets)


def _gpu_name(gpu: Gpu) -> str:
    return f"gpu-{gpu.minor}" if gpu.minor is not None else f"gpu-index-{gpu.index}"


def _place(gpu: Gpu, number: int = 0) -> tuple[str, int]:
    return bus_id(gpu.pci_bus_id or "") or f"~{gpu.index:04}", number


def _gpu_facts(driver: Driver, gpu: Gpu, host_root: str | None) -> dict[str, Attribute | None]:
    return {
        "productName": gpu.name,
        "brand": _WORDS.get(gpu.brand or "", (gpu.brand or "").title()),
        "architecture": (gpu.architecture or "").title(),
        "cudaComputeCapability": semantic_version(gpu.compute_capability),
        "driverVersion": semantic_version(driver.version),
        "cudaDriverVersion": semantic_version(driver.cuda),
        "addressingMode": "ATS" if gpu.coherent else None,
        "index": gpu.index,
        "minor": gpu.minor,
        **pci_attributes(host_root, bus_id(gpu.pci_bus_id or ""), gpu.numa_node),
    }


def _instance(gpu: Gpu, instance: MigInstance, facts: dict[str, Attribute | None]) -> DraDevice:
    own: dict[str, Attribute | None] = {
        "type": "mig",
        "uuid": instance.uuid,
        "parentUUID": gpu.uuid,
        "profile": instance.profile,
        "migIndex": instance.index,
        "gpuInstance": instance.gpu_instance,
        "computeInstance": instance.compute_instance,
    }
    chip = {name: getattr(instance, field) for field, name in _CHIP.items()}
    counters = dict(_counters(instance))
    return DraDevice(
        _instance_name(gpu, instance),
        _place(gpu, 1 + instance.index),
        known_attributes(own | facts),
        {name: number for name, number in chip.items() if number is not None},
        {label(f"{_gpu_name(gpu)}-counter-set"): counters} if counters else {},
    )


def _instance_name(gpu: Gpu, instance: MigInstance) -> str:
    """Return the name: profile, its id, and the first memory slice of the GPU instance."""
    place = f"{instance.profile_id}-{instance.memory_start}"
    if instance.profile_id is None or instance.memory_start is None:
        place = f"gi{instance.gpu_instance}-ci{instance.compute_instance}"
    elif _is_part(instance):
        place += f"-{instance.compute_instance}"
    return label(f"{_gpu_name(gpu)}-mig-{instance.profile or 'unknown'}-{place}")


def _is_part(instance: MigInstance) -> bool:
    """Return whether other compute instances can share the GPU instance."""
    return instance.compute_slices != instance.gpu_slices


def _counters(instance: MigInstance) -> Iterator[tuple[str, int]]:
    """Yield what an instance consumes of its GPU: engines, and each of its memory slices."""
    for field, name in _CHIP.items():
        number = getattr(instance, field)
        if number and (not _is_part(instance) or field in _OWN_OF_COMPUTE_INSTANCE):
            yield label("".join(f"-{c}" if c.isupper() else c for c in name)), number
    first, count = instance.memory_start, instance.memory_slices
    if first is not None and count and not _is_part(instance):
        yield from ((f"memory-slice-{number}", 1) for number in range(first, first + count))


def _add_counters(sets: dict[str, dict[str, int]], device: DraDevice) -> None:
    """Add what a device consumes to the counters of its GPU; a memory slice exists once."""
    for name, counters in device.counters.items():
        own = sets.setdefault(name, {})
        for counter, number in counters.items():
            is_slice = counter.startswith("memory-slice-")
            own[counter] = number if is_slice else own.get(counter, 0) + number
