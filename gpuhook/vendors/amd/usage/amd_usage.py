# SPDX-License-Identifier: Apache-2.0
"""The AMD devices of a node with their usage.

A GPU has its memory and its utilization in sysfs. The kernel reports neither for a partition: its
memory is KFD's, from AMD's own driver, else the sum of its processes. A suspended GPU is not read:
some reads resume it, and it computes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.amd.usage import amd_processes
from gpuhook.vendors.amd.usage.kfd_processes import node_used_bytes
from gpuhook.vendors.usage.usage_device import ProcessOnDevice, UsageDevice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode
    from gpuhook.vendors.amd.usage.amd_processes import AmdProcesses


def devices(node: AmdNode) -> tuple[UsageDevice, ...]:
    """Return the devices without their usage; a partitioned GPU is followed by its partitions."""
    return tuple(device for gpu in node.gpus for device in _of_gpu(gpu))


def usage(host_root: str, node: AmdNode) -> tuple[UsageDevice, ...]:
    """Return the devices with their present usage, in the order of devices()."""
    found = amd_processes.read(host_root, node)
    used = node_used_bytes(host_root) if any(gpu.is_partitioned for gpu in node.gpus) else {}
    answer: list[UsageDevice] = []
    for gpu in node.gpus:
        whole, *parts = _of_gpu(gpu)
        if not gpu.devices:
            answer.append(whole)
            continue
        if parts:
            answer.append(replace(_with_board(whole, host_root, gpu), processes=()))
            answer += [
                _with_part(_with_processes(part, found), used.get(device.kfd_id or 0))
                for part, device in zip(parts, gpu.devices, strict=True)
            ]
        else:
            answer.append(_with_board(_with_processes(whole, found), host_root, gpu))
    return tuple(answer)


def _of_gpu(gpu: AmdGpu) -> tuple[UsageDevice, ...]:
    whole = UsageDevice(
        gpu.pci_address,
        gpu.pci_address,
        str(gpu.index),
        name=gpu.name or (f"AMD 1002:{gpu.device_id}" if gpu.device_id else ""),
        profile=_mode(gpu) if gpu.is_partitioned else "",
        total=gpu.vram_bytes,
        has_percents=not gpu.is_partitioned,
        is_split=gpu.is_partitioned,
        lost=gpu.trouble or ("" if gpu.devices else "it has no device"),
    )
    if not gpu.devices:
        return (whole,)
    if not gpu.is_partitioned:
        return (replace(whole, node=gpu.devices[0].render_path),)
    # The PCI address is the id of the first partition.
    whole = replace(whole, uuid=gpu.uuid or f"GPU-{gpu.pci_address}")
    whole = replace(whole, gpu=whole.uuid)
    return (whole, *(_partition(gpu, device, whole) for device in gpu.devices))


def _partition(gpu: AmdGpu, device: AmdDevice, whole: UsageDevice) -> UsageDevice:
    return replace(
        whole,
        uuid=device.id,
        index=f"{gpu.index}:{device.partition}",
        node=device.render_path,
        total=device.memory_bytes,
        has_percents=True,
        is_split=False,
    )


def _mode(gpu: AmdGpu) -> str:
    return "/".join(filter(None, (gpu.compute_mode, gpu.memory_mode)))


def _with_board(device: UsageDevice, host_root: str, gpu: AmdGpu) -> UsageDevice:
    """Return a GPU with what sysfs reports of the whole board."""
    directory = amd_sysfs.directory_of(host_root, gpu.pci_address)
    total = amd_sysfs.number(f"{directory}/mem_info_vram_total")
    return replace(
        device,
        total=device.total if total is None else total,
        used=amd_sysfs.number(f"{directory}/mem_info_vram_used"),
        percent=_busy_percent(directory),
    )


def _busy_percent(directory: str) -> int | None:
    """Return the percentage of the last moments in which a GPU worked, without resuming it."""
    if amd_sysfs.is_suspended(directory):
        return 0
    percent = amd_sysfs.number(f"{directory}/gpu_busy_percent")
    return percent if percent is not None and percent <= 100 else None


def _with_processes(device: UsageDevice, found: AmdProcesses) -> UsageDevice:
    uses = found.uses.get(device.uuid, {})
    return replace(
        device,
        processes=tuple(
            ProcessOnDevice(pid, use.vram_bytes, use.percent) for pid, use in sorted(uses.items())
        ),
        residual=found.residual.get(device.uuid, 0),
        is_complete=found.is_complete,
    )


def _with_part(device: UsageDevice, used: int | None) -> UsageDevice:
    """Return a partition with its memory: `used`, else the sum of its processes if it has all."""
    if used is None and device.is_complete:
        amounts = [one.memory_bytes for one in device.processes or ()]
        known = [one for one in amounts if one is not None]
        used = sum(known) + device.residual if len(known) == len(amounts) else None
    return replace(device, used=used)
