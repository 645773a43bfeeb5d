# SPDX-License-Identifier: Apache-2.0
"""The bytes of each process on a GPU or MIG instance, of the processes as NVML lists them."""

from __future__ import annotations

from gpuhook.vendors.usage_device import ProcessOnDevice, process_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuhook.vendors.nvidia.nvml.gpu_usage import ProcessUse
    from gpuhook.vendors.usage_device import SampleTarget


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
    on_target = (use for use in uses if _is_on_target(use, target, is_parents=is_parents))
    return process_memory(ProcessOnDevice(use.pid, use.memory_bytes) for use in on_target)


def _is_on_target(use: ProcessUse, target: SampleTarget, *, is_parents: bool) -> bool:
    if target.instance is None:
        return True
    if use.gpu_instance is None:
        return not is_parents
    if use.gpu_instance != target.instance[0]:
        return False
    return use.compute_instance in (None, target.instance[1])
