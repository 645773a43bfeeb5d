# SPDX-License-Identifier: Apache-2.0
"""What the driver tells of each GPU and MIG instance: memory, how busy it is, its processes.

It is asked in a process of its own and for a limited time: a driver that hangs holds whoever calls
it, and nothing ends that.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files, state
from gpuhook.host.worker import LATE, UNSTARTED, NoAnswerError, Worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gpuhook.vendors.nvidia.inventory.inventory import Gpu, MigInstance
    from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse

PATIENCE = 10.0  # seconds: without persistence mode, starting NVML wakes each GPU up
_MAX_MINORS = 1 << 20


@dataclass(frozen=True, slots=True)
class ProcessOnDevice:
    """A process on a device: bytes, and the percentage of its multiprocessors' time."""

    pid: int
    memory_bytes: int | None = None
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class UsageDevice:
    """A GPU or MIG instance; bytes, None where nobody can tell. Its uuid is "" if NVML has none.

    `gpu` is the UUID of the GPU, which is its own for a GPU; `index` is "0", or "0:1" for an
    instance; `node` the device node that only its holders have. A GPU in MIG mode `is_split`: its
    instances are what is used. `lost` is why it cannot be used, "" if it can.
    """

    uuid: str
    gpu: str
    index: str
    name: str = ""
    profile: str = ""
    node: str = ""
    total: int | None = None
    used: int | None = None
    reserved: int | None = None
    percent: int | None = None
    processes: tuple[ProcessOnDevice, ...] | None = None
    is_split: bool = False
    lost: str = ""


@dataclass(frozen=True, slots=True)
class UsageLook:
    """What one look at the driver showed; `trouble` is why it showed nothing, None if it did.

    `is_asked` is false where nobody wanted it to be asked.
    """

    devices: tuple[UsageDevice, ...] = ()
    trouble: GpuhookError | None = None
    is_asked: bool = True


class DriverReading:
    """The driver, asked through the NVML library at `library` for as long as it is needed."""

    def __init__(self, library: str, patience: float | None = None) -> None:
        """Start asking; a driver that cannot be asked is the trouble of each look."""
        self._patience = patience or PATIENCE
        self._trouble: GpuhookError | None = None
        self._worker: Worker | None = None
        root = state.host_root()
        try:
            self._worker = Worker(lambda: _Asking(library, root), self._patience)
        except (GpuhookError, NoAnswerError) as error:
            self._trouble = _worded(error, self._patience)

    def look(self) -> UsageLook:
        """Return what the devices are used for now."""
        if self._worker is None or self._trouble is not None:
            return UsageLook(trouble=self._trouble)
        try:
            return UsageLook(devices=self._worker.call("look"))
        except (GpuhookError, NoAnswerError) as error:
            self._trouble = _worded(error, self._patience)
            return UsageLook(trouble=self._trouble)

    def close(self) -> None:
        """Let the library go."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> DriverReading:  # noqa: PYI034 # Self needs a newer Python
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _worded(error: GpuhookError | NoAnswerError, patience: float) -> GpuhookError:
    """Return the fault that it is."""
    if isinstance(error, GpuhookError):
        return error
    if error.how == LATE:
        return fault("GH1256", seconds=f"{patience:g}")
    if error.how == UNSTARTED:
        return fault("GH1258", reason=error.reason)
    return fault("GH1257", reason=error.reason)


class _Asking:
    """NVML, open; made and asked in a process of its own."""

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


def _devices(gpu: Gpu, minors: dict[str, int]) -> Iterable[UsageDevice]:
    from gpuhook.vendors.nvidia.nvml import gpu_usage

    uuid = gpu.uuid or ""
    facts: dict[str, Any] = {"name": gpu.name or "", "lost": gpu.lost or ""}
    if gpu.minor is not None:
        facts["node"] = f"/dev/nvidia{gpu.minor}"
    is_split = gpu.mig_mode == "enabled"
    if uuid and not gpu.lost:
        facts |= _memory(uuid)
        facts["percent"] = None if is_split else gpu_usage.gpu_percent(uuid)
        listed = () if is_split else gpu_usage.processes(uuid)
        told = {} if is_split else gpu_usage.process_percents(uuid)
        facts["processes"] = _uses(listed, told)
    facts.setdefault("total", gpu.memory_bytes)
    yield UsageDevice(uuid, uuid, str(gpu.index), is_split=is_split, **facts)
    for instance in gpu.instances:
        yield _instance(gpu, instance, minors)


def _instance(gpu: Gpu, instance: MigInstance, minors: dict[str, int]) -> UsageDevice:
    from gpuhook.device_plugin.guard.usage_sample import SampleTarget, memory_by_pid
    from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary

    uuid = gpu.uuid or ""
    place = (instance.gpu_instance, instance.compute_instance)
    minor = minors.get(mig_capabilities.name(gpu.minor, *place)) if gpu.minor is not None else None
    listed = memory_by_pid(_Listing(), SampleTarget(instance.uuid, uuid, place))
    facts: dict[str, Any] = {"total": instance.memory_bytes, **_memory(instance.uuid)}
    return UsageDevice(
        instance.uuid,
        uuid,
        f"{gpu.index}:{instance.index}",
        name=gpu.name or "",
        profile=instance.profile or "",
        node=vocabulary.capability_node(minor) if minor is not None else "",
        processes=None
        if listed is None
        else tuple(ProcessOnDevice(pid, used) for pid, used in listed.items()),
        **facts,
    )


class _Listing:
    """Lists processes as the device plugin's guard asks for them; NVML is open already."""

    def opened(self) -> ExitStack:
        return ExitStack()

    def processes(self, uuid: str) -> tuple[ProcessUse, ...] | None:
        from gpuhook.vendors.nvidia.nvml import gpu_usage

        return gpu_usage.processes(uuid)


def _memory(uuid: str) -> dict[str, int | None]:
    from gpuhook.vendors.nvidia.nvml import gpu_usage

    told = gpu_usage.memory(uuid)
    if told is None:
        return {}
    return {"total": told.total, "used": told.used, "reserved": told.reserved}


def _uses(
    listed: Sequence[ProcessUse] | None, percents: dict[int, int] | None
) -> tuple[ProcessOnDevice, ...] | None:
    """Return the processes; one that computes and draws is listed twice, with all its memory."""
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
