# SPDX-License-Identifier: Apache-2.0
"""Memory, utilization and processes of each GPU and MIG instance, as the driver reports them.

The driver is called in a child process with a deadline: a call into a driver that hangs never ends.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files, state
from gpuhook.host.worker import LATE, UNSTARTED, NoAnswerError, Worker
from gpuhook.usage import usage_devices
from gpuhook.usage.usage_devices import ProcessOnDevice, UsageDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance
    from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse

PATIENCE = 10.0  # seconds; without persistence mode, NVML initialises each GPU when it starts
_MAX_MINORS = 1 << 20


@dataclass(frozen=True, slots=True)
class UsageLook:
    """The answer of the driver; `trouble` is why there is none. `is_asked`: it was called."""

    devices: tuple[UsageDevice, ...] = ()
    trouble: GpuhookError | None = None
    is_asked: bool = True


class DriverReading:
    """The driver, called through the NVML library at `library`."""

    def __init__(self, library: str, patience: float | None = None) -> None:
        """Start the child process; if that fails, each look has the trouble."""
        self._patience = patience or PATIENCE
        self._trouble: GpuhookError | None = None
        self._worker: Worker | None = None
        root = state.host_root()
        try:
            self._worker = Worker(lambda: _NvmlReader(library, root), self._patience)
        except (GpuhookError, NoAnswerError) as error:
            self._trouble = _fault(error, self._patience)

    def look(self) -> UsageLook:
        """Return the present usage of the devices."""
        if self._worker is None or self._trouble is not None:
            return UsageLook(trouble=self._trouble)
        try:
            return UsageLook(devices=self._worker.call("look"))
        except (GpuhookError, NoAnswerError) as error:
            self._trouble = _fault(error, self._patience)
            return UsageLook(trouble=self._trouble)

    def close(self) -> None:
        """End the child process."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> DriverReading:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _fault(error: GpuhookError | NoAnswerError, patience: float) -> GpuhookError:
    if isinstance(error, GpuhookError):
        return error
    if error.how == LATE:
        return fault("GH1256", seconds=f"{patience:g}")
    if error.how == UNSTARTED:
        return fault("GH1258", reason=error.reason)
    return fault("GH1257", reason=error.reason)


class _NvmlReader:
    """An open NVML library, in the child process."""

    def __init__(self, library: str, host_root: str) -> None:
        from gpuhook.vendors.nvidia.hot import host_fingerprint
        from gpuhook.vendors.nvidia.nvml import nvml_inventory

        self._host_root = host_root
        self._stack = ExitStack()
        loaded = host_fingerprint.module_version(host_root) or None
        self._nvml = self._stack.enter_context(nvml_inventory.opened(library, loaded))

    def look(self) -> tuple[UsageDevice, ...]:
        minors = _minors(self._host_root)
        return tuple(one for gpu in self._nvml.gpus() for one in _devices(gpu, minors))

    def close(self) -> None:
        self._stack.close()


def _minors(host_root: str) -> dict[str, int]:
    from gpuhook.vendors.nvidia.hot import mig_capabilities

    try:
        content = files.read(host_root.rstrip("/") + mig_capabilities.MINORS, _MAX_MINORS)
    except (OSError, GpuhookError):
        return {}
    return mig_capabilities.parse_minors(content.decode("ascii", "replace"))


def _devices(gpu: Gpu, minors: dict[str, int]) -> Iterator[UsageDevice]:
    from gpuhook.vendors.nvidia.nvml import gpu_usage

    device = usage_devices.gpu_device(gpu)
    if device.uuid and not gpu.lost:
        listed = () if device.is_split else gpu_usage.processes(device.uuid)
        percents = {} if device.is_split else gpu_usage.process_percents(device.uuid)
        device = replace(
            _with_memory(device),
            percent=None if device.is_split else gpu_usage.gpu_percent(device.uuid),
            processes=_processes(listed, percents),
        )
    yield device
    for instance in gpu.instances:
        yield _instance(gpu, instance, minors)


def _instance(gpu: Gpu, instance: MigInstance, minors: dict[str, int]) -> UsageDevice:
    from gpuhook.device_plugin.guard.usage_sample import SampleTarget, memory_by_pid
    from gpuhook.vendors.nvidia.hot import mig_capabilities
    from gpuhook.vendors.nvidia.nvml import gpu_usage

    place = (instance.gpu_instance, instance.compute_instance)
    minor = minors.get(mig_capabilities.name(gpu.minor, *place)) if gpu.minor is not None else None
    listed = memory_by_pid(gpu_usage.processes, SampleTarget(instance.uuid, gpu.uuid or "", place))
    processes = [ProcessOnDevice(pid, used) for pid, used in (listed or {}).items()]
    device = _with_memory(usage_devices.instance_device(gpu, instance, minor))
    return replace(device, processes=None if listed is None else tuple(processes))


def _with_memory(device: UsageDevice) -> UsageDevice:
    from gpuhook.vendors.nvidia.nvml import gpu_usage

    memory = gpu_usage.memory(device.uuid)
    if memory is None:
        return device
    return replace(device, total=memory.total, used=memory.used, reserved=memory.reserved)


def _processes(
    listed: Sequence[ProcessUse] | None, percents: dict[int, int] | None
) -> tuple[ProcessOnDevice, ...] | None:
    """Return the processes; NVML lists one that computes and draws twice, with all its memory."""
    if listed is None:
        return None
    found: dict[int, int | None] = {}
    for one in listed:
        before, now = found.get(one.pid), one.memory_bytes
        found[one.pid] = now if before is None else max(before, now or 0)
    busy = None if percents is None else {pid: percents.get(pid, 0) for pid in found}
    return tuple(
        ProcessOnDevice(pid, used, busy[pid] if busy else None) for pid, used in found.items()
    )
