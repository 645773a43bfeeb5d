# SPDX-License-Identifier: Apache-2.0
"""The bytes of each process on a GPU or MIG instance, of the processes as NVML lists them."""

from __future__ import annotations

from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse
    from gpuhook.vendors.usage_device import ProcessOnDevice


@dataclass(frozen=True, slots=True)
class SampleTarget:
    """A device to sample. `gpu` and `instance` are the GPU of a MIG instance and its ids there."""

    uuid: str
    gpu: str
    instance: tuple[int, int] | None = None


def memory_by_pid(
    processes: Callable[[str], Sequence[ProcessUse] | None], target: SampleTarget
) -> dict[int, int | None] | None:
    """Return the bytes of each process on a device, None if the driver does not report them.

    `processes` returns the processes of the GPU or MIG instance with a UUID. A driver that does not
    list those of a MIG instance lists those of the GPU with their instances. Raises GpuhookError.
    """
    uses = processes(target.uuid)
    is_parents = uses is None and target.instance is not None
    if is_parents:
        uses = processes(target.gpu)
    if uses is None:
        return None
    return process_memory(use for use in uses if _is_on_target(use, target, is_parents=is_parents))


def _is_on_target(use: ProcessUse, target: SampleTarget, *, is_parents: bool) -> bool:
    if target.instance is None:
        return True
    if use.gpu_instance is None:
        return not is_parents
    if use.gpu_instance != target.instance[0]:
        return False
    return use.compute_instance in (None, target.instance[1])


def process_memory(uses: Iterable[ProcessUse | ProcessOnDevice]) -> dict[int, int | None]:
    """Return the bytes of each process, None if not reported.

    The driver lists a process that computes and draws twice, each time with its total.
    """
    by_pid: dict[int, int | None] = {}
    for use in uses:
        before, now = by_pid.get(use.pid), use.memory_bytes
        by_pid[use.pid] = now if before is None else max(before, now or 0)
    return by_pid
