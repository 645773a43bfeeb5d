# SPDX-License-Identifier: Apache-2.0
"""The present usage of NVIDIA's devices for the services of the device plugin, from NVML.

Each call opens NVML, and blocks. While the plugin waits for events, NVML is open already, and
opening it again costs little.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace

from gpuhook.errors import GpuhookError
from gpuhook.vendors.nvidia.hot import vocabulary
from gpuhook.vendors.nvidia.nvml import gpu_usage, nvml_inventory
from gpuhook.vendors.nvidia.usage import nvidia_devices
from gpuhook.vendors.nvidia.usage.process_memory import memory_by_pid
from gpuhook.vendors.usage_device import ProcessOnDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.plugin.nvidia_part import NvidiaPart
    from gpuhook.vendors.usage_device import SampleTarget, UsageDevice


class NvmlProcesses:
    """The processes on the devices of a part; the methods raise GH1202 to GH1206."""

    def __init__(self, part: NvidiaPart) -> None:
        self._library = part.library_and_module

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep NVML open for several calls."""
        with nvml_inventory.opened(*self._library):
            yield

    def memory(self, target: SampleTarget) -> dict[int, int | None] | None:
        """Return the bytes of each process, None if the driver does not report them."""
        if not vocabulary.is_uuid(target.uuid):
            return None
        with self.opened():
            return memory_by_pid(gpu_usage.processes, target)


def usage(part: NvidiaPart) -> tuple[UsageDevice, ...]:
    """Return the devices of a part with their usage. Raises GH1202 to GH1206."""
    with nvml_inventory.opened(*part.library_and_module):
        return tuple(map(_used, nvidia_devices.of_node(part.seen)))


def _used(device: UsageDevice) -> UsageDevice:
    """Return a device with its usage; its error must not affect the other devices."""
    device = replace(device, total=None)
    if not device.uuid or device.is_split:  # its instances have the processes
        return device
    with suppress(Exception):  # of the driver, its binding, or a bug
        memory = gpu_usage.memory(device.uuid)
        if memory is not None:
            device = replace(device, total=memory.total, used=memory.used)
        listed = gpu_usage.processes(device.uuid)
        if listed is not None:
            uses = tuple(ProcessOnDevice(one.pid, one.memory_bytes) for one in listed)
            device = replace(device, processes=uses)
        device = replace(device, percent=gpu_usage.gpu_percent(device.uuid))
    return device


def free_memory(part: NvidiaPart, uuid: str) -> int | None:
    """Return the free bytes of a device of a part, None if unknown."""
    if not part.library or not vocabulary.is_uuid(uuid):
        return None
    try:
        with nvml_inventory.opened(*part.library_and_module):
            memory = gpu_usage.memory(uuid)
    except GpuhookError:
        return None
    return None if memory is None else memory.free
