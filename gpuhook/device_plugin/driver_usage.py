# SPDX-License-Identifier: Apache-2.0
"""The memory of GPUs and who uses it, asked of the NVML library that the node was seen with."""

from __future__ import annotations

from contextlib import contextmanager

from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.device_plugin.node_snapshot import Look
    from gpuhook.vendors.nvidia.nvml.gpu_usage import GpuMemory, ProcessUse


class DriverUsage:
    """Asks the driver, by the UUID of a GPU or MIG instance. Each call opens NVML, and blocks.

    While the plugin watches for events NVML is open anyway, and opening it again costs little.
    """

    def __init__(self, library: str, module_version: str | None) -> None:
        self._library = (library, module_version)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep NVML open for several questions. Raises GH1202 to GH1206."""
        from gpuhook.vendors.nvidia.nvml import nvml_inventory

        with nvml_inventory.opened(*self._library):
            yield

    def memory(self, uuid: str) -> GpuMemory | None:
        """Return its memory in bytes, None if nobody can tell. Raises GH1202 to GH1206."""
        from gpuhook.vendors.nvidia.nvml import gpu_usage, nvml_inventory

        with nvml_inventory.opened(*self._library):
            return gpu_usage.memory(uuid)

    def processes(self, uuid: str) -> tuple[ProcessUse, ...] | None:
        """Return who uses it, None if nobody can tell. Raises GH1202 to GH1206."""
        from gpuhook.vendors.nvidia.nvml import gpu_usage, nvml_inventory

        with nvml_inventory.opened(*self._library):
            return gpu_usage.processes(uuid)

    def free(self, uuid: str) -> int | None:
        """Return the bytes that are free, None where nobody can tell. Never raises GpuhookError."""
        try:
            memory = self.memory(uuid)
        except GpuhookError:
            return None
        return None if memory is None else memory.free


def driver_usage(look: Look) -> DriverUsage | None:
    """Return who asks the driver of a node; None for one that is a dump, or has no driver."""
    if look.seen.driver.nvml is None or look.is_dump:
        return None
    return DriverUsage(*look.library)
