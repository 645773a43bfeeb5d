# SPDX-License-Identifier: Apache-2.0
"""The processes on each AMD device, from KFD and from the fdinfo of DRM clients.

A compute process is in both sources. They list the same buffers: KFD allocates in the address space
of the render node's client, whose fdinfo includes KFD's memory. KFD's figure lacks the memory of
pure DRM clients, such as a video decoder, and fdinfo lacks evicted memory. The larger one applies.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gpuhook.errors import GpuhookError
from gpuhook.host.hot import files, procfs
from gpuhook.vendors.amd.usage.drm_clients import DrmClients, drm_clients
from gpuhook.vendors.amd.usage.kfd_processes import KfdUse, kfd_uses, whole_sum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdNode
    from gpuhook.vendors.amd.usage.drm_clients import DrmClient

_FIRST_KERNEL_THREAD = (2, b"kthreadd\n")  # it exists in the host's pid namespace only
_MAX_COMM = 256


@dataclass(frozen=True, slots=True)
class AmdProcessUse:
    """The use of a device by a process: bytes of VRAM, percentage of the compute units."""

    vram_bytes: int | None
    percent: int | None = None


@dataclass(frozen=True, slots=True)
class AmdProcesses:
    """The processes by device id and pid. `residual`: bytes that ended processes still have.

    `is_complete`: all processes of the host could be read, so the others use no device.
    """

    uses: dict[str, dict[int, AmdProcessUse]] = field(default_factory=dict)
    residual: dict[str, int] = field(default_factory=dict)
    is_complete: bool = True


def processes(host_root: str, node: AmdNode) -> dict[str, dict[int, int | None]]:
    """Return device id -> pid -> bytes of VRAM, None for bytes that are not known."""
    return {
        device: {pid: use.vram_bytes for pid, use in uses.items()}
        for device, uses in read(host_root, node).uses.items()
    }


def read(host_root: str, node: AmdNode) -> AmdProcesses:
    """Return the processes on the devices of a node; pids are those of the host.

    A /proc that is not the host's has other pids: its DRM clients are not read.
    """
    proc = f"{host_root.rstrip('/')}/proc"
    devices = [device for _, device in node.devices()]
    if not devices:
        return AmdProcesses()
    found: dict[str, dict[int, AmdProcessUse]] = {one.id: {} for one in devices}
    is_host = _is_hosts(proc)
    residual = _add_compute(found, host_root, devices, proc if is_host else "")
    drm = drm_clients(proc) if is_host else DrmClients(unread=1)
    for (device, pid), vram in _drm_bytes(node, drm.clients, found).items():
        known = found[device].get(pid, AmdProcessUse(None))
        amounts = [one for one in (vram, known.vram_bytes) if one is not None]
        found[device][pid] = AmdProcessUse(max(amounts, default=None), known.percent)
    return AmdProcesses(found, residual, not drm.unread)


def _add_compute(
    found: dict[str, dict[int, AmdProcessUse]],
    host_root: str,
    devices: Iterable[AmdDevice],
    proc: str,
) -> dict[str, int]:
    """Add KFD's processes, and return the memory of those that have exited.

    `proc` is the host's, "" for none: then all processes may be running.
    """
    by_kfd = {one.kfd_id: one for one in devices if one.kfd_id}
    residual: dict[str, int] = {}
    for pid, uses in kfd_uses(host_root, by_kfd).items():
        is_over = bool(proc) and _has_ended(proc, pid)
        for kfd_id, use in uses.items():
            device = by_kfd[kfd_id]
            if not is_over:
                found[device.id][pid] = AmdProcessUse(use.vram_bytes, _percent(use, device))
            elif use.vram_bytes:
                residual[device.id] = residual.get(device.id, 0) + use.vram_bytes
    return residual


def _drm_bytes(
    node: AmdNode, clients: Iterable[DrmClient], compute: Mapping[str, Mapping[int, object]]
) -> dict[tuple[str, int], int | None]:
    """Return (device id, pid) -> bytes of its clients; each client belongs to one process.

    Of several processes with the client, that is one which computes, else that of the lowest pid.
    """
    by_minor = _by_minor(node)
    alone = {gpu.pci_address: gpu.devices[0].id for gpu in node.gpus if len(gpu.devices) == 1}
    owners: dict[tuple[str, bytes], tuple[str, DrmClient]] = {}
    for client in clients:
        by_address = alone.get(client.pci_address)
        device = by_address if client.minor is None else by_minor.get(client.minor, by_address)
        if device is None:
            continue
        key = (client.pci_address, client.identity)
        owner = owners.get(key)
        computes = client.pid in compute[device]
        if owner is None or (computes and owner[1].pid not in compute[owner[0]]):
            owners[key] = (device, client)
    found: dict[tuple[str, int], int | None] = {}
    for device, client in owners.values():
        place = (device, client.pid)
        found[place] = whole_sum(found.get(place, 0), client.vram_bytes)
    return found


def _by_minor(node: AmdNode) -> dict[int, str]:
    """Return minor -> device id, of render nodes and of cards: minors of both are different."""
    found = {}
    for _, device in node.devices():
        found[device.render_minor] = device.id
        if device.card_minor is not None:
            found[device.card_minor] = device.id
    return found


def _percent(use: KfdUse, device: AmdDevice) -> int | None:
    if use.occupied_cus is None or not device.cu_count:
        return None
    return min(100, round(100 * use.occupied_cus / device.cu_count))


def _is_hosts(proc: str) -> bool:
    """Return whether a procfs shows the processes of the host, with the host's pids."""
    pid, name = _FIRST_KERNEL_THREAD
    try:
        return files.read(f"{proc}/{pid}/comm", _MAX_COMM) == name
    except (OSError, GpuhookError):
        return False


def _has_ended(proc: str, pid: int) -> bool:
    """Return whether a process has exited, also if its parent has not waited for it."""
    fields = procfs.process_stat(pid, proc)
    return fields[0] in procfs.ENDED if fields else not os.path.exists(f"{proc}/{pid}")
