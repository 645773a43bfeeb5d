# SPDX-License-Identifier: Apache-2.0
"""The memory of GPUs and the processes that use it, as the driver reports them."""

from __future__ import annotations

from contextlib import contextmanager

from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendor_of_resource
from gpuhook.vendors.nvidia.nvml import gpu_usage, nvml_inventory
from gpuhook.vendors.nvidia.plugin import nvidia_part

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.device_plugin.node_snapshot import NodeSnapshot
    from gpuhook.vendors.nvidia.nvml.gpu_usage import GpuMemory, ProcessUse


class DriverUsage:
    """Queries by the UUID of a GPU or MIG instance. Each call opens NVML, and blocks.

    While the plugin waits for events, NVML is open already, and opening it again costs little.
    All methods but `free` raise GH1202 to GH1206.
    """

    def __init__(self, library: str, module_version: str | None) -> None:
        self._library = (library, module_version)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep NVML open for several calls."""
        with nvml_inventory.opened(*self._library):
            yield

    def memory(self, uuid: str) -> GpuMemory | None:
        """Return the memory in bytes, None if the driver does not report it."""
        with self.opened():
            return gpu_usage.memory(uuid)

    def processes(self, uuid: str) -> tuple[ProcessUse, ...] | None:
        """Return the processes that use the device, None if the driver does not report them."""
        with self.opened():
            return gpu_usage.processes(uuid)

    def percent(self, uuid: str) -> int | None:
        """Return the utilization of a GPU, None if the driver does not report it."""
        with self.opened():
            return gpu_usage.gpu_percent(uuid)

    def free(self, uuid: str) -> int | None:
        """Return the free bytes, None if unknown. Never raises GpuhookError."""
        try:
            memory = self.memory(uuid)
        except GpuhookError:
            return None
        return None if memory is None else memory.free


def driver_usage(snapshot: NodeSnapshot) -> DriverUsage | None:
    """Return the queries of a node's driver; None for an inventory file, or without a driver."""
    own = nvidia_part.own_part(snapshot.parts)
    return None if snapshot.is_dump or not own.library else DriverUsage(*own.library_and_module)


def free_memory(snapshot: NodeSnapshot, uuid: str, host_root: str) -> int | None:
    """Return the free bytes of a device of any vendor, None if unknown."""
    if snapshot.is_dump:
        return None
    for part in snapshot.parts:
        free = vendor_of_resource(part.domain).free_memory(part, uuid, host_root)
        if free is not None:
            return free
    usage = driver_usage(snapshot)
    return None if usage is None else usage.free(uuid)
