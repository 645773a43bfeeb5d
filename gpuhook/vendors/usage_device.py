# SPDX-License-Identifier: Apache-2.0
"""The GPUs of a node and their parts, with their present usage, of any vendor."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuhook.errors import GpuhookError


@dataclass(frozen=True, slots=True)
class ProcessOnDevice:
    """A process on a device; `percent` is its part of the device's compute units or time."""

    pid: int
    memory_bytes: int | None = None
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class SampleTarget:
    """A device to sample. `gpu` and `instance` are the GPU of a MIG instance and its ids there."""

    uuid: str
    gpu: str
    instance: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class UsageDevice:
    """A GPU, or a part of one (a MIG instance, a partition); memory is in bytes, None if unknown.

    `uuid` is the id by which containers have it, "" if it has none, and `gpu` that of its GPU.
    `index` is "0", or "0:1" for a part. `profile` is the kind of a part, or the mode of a GPU that
    all of its parts have. `node` is the device node that only its holders have. `is_split`: a GPU
    that is used through its parts. `lost` is why it cannot be used, "" if it can.

    `reserved` is the driver's own part of the memory; None: it is in `used`. `residual` is memory
    that no longer belongs to a process. `is_complete`: `processes` has all of them, so no other
    process uses the device. `has_percents`: the utilization of processes is reported.
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
    residual: int = 0
    percent: int | None = None
    processes: tuple[ProcessOnDevice, ...] | None = None
    is_complete: bool = True
    has_percents: bool = True
    is_split: bool = False
    lost: str = ""


@dataclass(frozen=True, slots=True)
class UsageLook:
    """The answer of one vendor's driver, or its recorded devices and why there is no answer.

    `has_driver`: the node has a driver of the vendor. `trouble` of a node without one is no fault.
    """

    devices: tuple[UsageDevice, ...] = ()
    trouble: GpuhookError | None = None
    has_driver: bool = True
    warnings: tuple[str, ...] = ()


def process_memory(uses: Iterable[ProcessOnDevice]) -> dict[int, int | None]:
    """Return the bytes of each process, None if not reported.

    A driver may list a process that computes and draws twice, each time with its total.
    """
    by_pid: dict[int, int | None] = {}
    for use in uses:
        before, now = by_pid.get(use.pid), use.memory_bytes
        by_pid[use.pid] = now if before is None else max(before, now or 0)
    return by_pid
