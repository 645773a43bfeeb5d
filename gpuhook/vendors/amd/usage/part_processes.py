# SPDX-License-Identifier: Apache-2.0
"""The processes on AMD devices for the guard, from the kernel's files."""

from __future__ import annotations

from contextlib import contextmanager, suppress

from gpuhook.vendors.amd.inventory import sysfs_inventory
from gpuhook.vendors.amd.usage import amd_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuhook.vendors.usage_device import SampleTarget

    Uses = Mapping[str, Mapping[int, int | None]]  # bytes by device and pid


class KernelProcesses:
    """Reads /sys and /proc below `host_root`."""

    def __init__(self, host_root: str) -> None:
        self._host_root = host_root
        self._sample: Uses | None = None  # while opened

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Let all calls describe one sample."""
        self._sample = self._read()
        try:
            yield
        finally:
            self._sample = None

    def memory(self, target: SampleTarget) -> Mapping[int, int | None] | None:
        """Return the bytes of VRAM of each process on a device, None for another device."""
        sample = self._read() if self._sample is None else self._sample
        return sample.get(target.uuid)

    def _read(self) -> Uses:
        with suppress(Exception):  # of the files of a changing node, or a bug
            node = sysfs_inventory.read(self._host_root, self._host_root)
            return amd_processes.processes(self._host_root, node)
        return {}
