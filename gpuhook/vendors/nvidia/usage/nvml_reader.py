# SPDX-License-Identifier: Apache-2.0
"""Memory, utilization and processes of each GPU and MIG instance, from NVML.

NVML's calls may never return: nvidia_usage.py makes them in a child process.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files
from gpuhook.vendors.nvidia.hot import host_fingerprint, mig_capabilities
from gpuhook.vendors.nvidia.nvml import gpu_usage, nvml_inventory
from gpuhook.vendors.nvidia.usage import nvidia_devices
from gpuhook.vendors.nvidia.usage.process_memory import memory_by_pid
from gpuhook.vendors.usage.usage_device import (
    ProcessOnDevice,
    SampleTarget,
    UsageDevice,
    UsageLook,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance

_MAX_MINORS = 1 << 20


class NvmlReader:
    """An open NVML library, in the child process."""

    def __init__(self, library: str, host_root: str) -> None:
        self._host_root = host_root
        self._stack = ExitStack()
        loaded = host_fingerprint.module_version(host_root) or None
        self._nvml = self._stack.enter_context(nvml_inventory.opened(library, loaded))

    def look(self) -> UsageLook:
        minors = _minors(self._host_root)
        return UsageLook(tuple(one for gpu in self._nvml.gpus() for one in _devices(gpu, minors)))

    def close(self) -> None:
        self._stack.close()


def _minors(host_root: str) -> dict[str, int]:
    try:
        content = files.read(host_root.rstrip("/") + mig_capabilities.MINORS, _MAX_MINORS)
    except (OSError, GpuhookError):
        return {}
    return mig_capabilities.parse_minors(content.decode("ascii", "replace"))


def _devices(gpu: Gpu, minors: dict[str, int]) -> Iterator[UsageDevice]:
    device = nvidia_devices.gpu_device(gpu)
    if device.uuid and not gpu.lost:
        device = _with_memory(device)
        if device.is_split:  # its instances have the processes
            device = replace(device, processes=())
        else:
            percents = gpu_usage.process_percents(device.uuid)
            listed = _processes(SampleTarget(device.uuid, device.uuid), percents)
            percent = gpu_usage.gpu_percent(device.uuid)
            device = replace(device, percent=percent, processes=listed)
    yield device
    for instance in gpu.instances:
        yield _instance(gpu, instance, minors)


def _instance(gpu: Gpu, instance: MigInstance, minors: dict[str, int]) -> UsageDevice:
    place = (instance.gpu_instance, instance.compute_instance)
    minor = minors.get(mig_capabilities.name(gpu.minor, *place)) if gpu.minor is not None else None
    device = _with_memory(nvidia_devices.instance_device(gpu, instance, minor))
    return replace(device, processes=_processes(SampleTarget(instance.uuid, gpu.uuid or "", place)))


def _processes(
    target: SampleTarget, percents: dict[int, int] | None = None
) -> tuple[ProcessOnDevice, ...] | None:
    """Return the processes; `percents` are those of the busy ones, None if not reported."""
    listed = memory_by_pid(gpu_usage.processes, target)
    if listed is None:
        return None
    return tuple(
        ProcessOnDevice(pid, used, None if percents is None else percents.get(pid, 0))
        for pid, used in listed.items()
    )


def _with_memory(device: UsageDevice) -> UsageDevice:
    memory = gpu_usage.memory(device.uuid)
    if memory is None:
        return device
    return replace(device, total=memory.total, used=memory.used, reserved=memory.reserved)
