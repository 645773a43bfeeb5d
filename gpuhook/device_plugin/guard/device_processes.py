# SPDX-License-Identifier: Apache-2.0
"""The processes on the devices of all vendors: from NVML, and from the kernel's files.

A vendor that fails has no processes, and does not affect another.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress

from gpuhook.errors import GpuhookError
from gpuhook.vendors.catalogue import vendors
from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.device_plugin.driver_memory import DriverUsage

    Uses = Mapping[str, Mapping[int, int | None]]  # bytes by device and pid


class DeviceProcesses:
    """Queries by the id of a device. `driver` has those of NVML, None without it."""

    def __init__(self, driver: DriverUsage | None, host_root: str) -> None:
        self._driver = driver
        self._host_root = host_root
        self._sample: Uses | None = None  # of the kernel's files, while opened

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep NVML open for several calls, which all describe one sample of the kernel's files."""
        self._sample = self._by_kernel()
        try:
            with ExitStack() as stack:
                if self._driver is not None:
                    with suppress(GpuhookError):  # then each query has no answer
                        stack.enter_context(self._driver.opened())
                yield
        finally:
            self._sample = None

    def processes(self, device: str) -> tuple[ProcessUse, ...] | None:
        """Return the processes on a device, None if they are not reported."""
        by_kernel = self._by_kernel() if self._sample is None else self._sample
        if device in by_kernel:
            uses = by_kernel[device].items()
            return tuple(ProcessUse(pid, size, None, None, "compute") for pid, size in uses)
        try:
            return None if self._driver is None else self._driver.processes(device)
        except GpuhookError:
            return None

    def has_devices(self) -> bool:
        """Return whether processes can be known at all."""
        return self._driver is not None or bool(self._by_kernel())

    def _by_kernel(self) -> Uses:
        found: dict[str, Mapping[int, int | None]] = {}
        for vendor in vendors():
            try:
                found.update(vendor.process_memory(self._host_root))
            except Exception:  # noqa: S112 # of the kernel's files, or a bug
                continue
        return found
