# SPDX-License-Identifier: Apache-2.0
"""The health of AMD GPUs from the files of the driver.

Read-only, and no GPU is resumed: of a suspended one, only its presence is checked. Counters of
errors are not read on GPUs of the MI200 series, whose hardware clears them at each read: another
reader, such as AMD's metrics exporter, would miss them.
"""

from __future__ import annotations

import errno
import os

from gpuhook.vendors.amd.hot import amd_sysfs
from gpuhook.vendors.plugin.vendor_part import DeviceCheck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.vendors.amd.inventory.amd_inventory import AmdDevice, AmdGpu, AmdNode

_MEMORY = "mem_info_vram_total"
_DEAD = (errno.ENODEV, errno.EIO, errno.ENXIO)
_BUSY = (errno.EPERM, errno.EACCES, errno.EBUSY, errno.EAGAIN)  # during a reset of the GPU
_CLEARED_BY_READS = ("gfx90a",)
UNCORRECTABLE, BAD_PAGES = "uncorrectable errors", "bad pages of memory"


def check_devices(node: AmdNode, host_root: str, dev_root: str | None) -> dict[str, DeviceCheck]:
    """Return the state of each device by its id. /sys is below `host_root`."""
    root = host_root.rstrip("/")
    is_loaded = amd_sysfs.is_ready(host_root)
    checks: dict[str, DeviceCheck] = {}
    for gpu in node.gpus:
        own = DeviceCheck("" if is_loaded else "the driver amdgpu is not loaded")
        if is_loaded:
            own = _gpu_check(gpu, amd_sysfs.directory_of(root, gpu.pci_address))
        for device in gpu.devices:
            missing = "" if own.fault else _missing_node(device, root, (dev_root or "").rstrip("/"))
            checks[device.id] = DeviceCheck(missing) if missing else own
    return checks


def free_memory(node: AmdNode, uuid: str, host_root: str) -> int | None:
    """Return the free bytes of a GPU; the driver does not report those of one partition."""
    gpu = next((gpu for gpu, device in node.devices() if device.id == uuid), None)
    if gpu is None or gpu.is_partitioned:
        return None
    place = amd_sysfs.directory_of(host_root, gpu.pci_address) + "/mem_info_vram_"
    total, used = amd_sysfs.number(place + "total"), amd_sysfs.number(place + "used")
    return None if total is None or used is None else max(0, total - used)


def _gpu_check(gpu: AmdGpu, directory: str) -> DeviceCheck:
    if not os.path.isdir(directory):
        return DeviceCheck("the driver amdgpu no longer has it")
    if amd_sysfs.is_suspended(directory):
        return DeviceCheck(is_busy=True)
    try:
        amd_sysfs.text(f"{directory}/{_MEMORY}")
    except OSError as error:
        if error.errno in _DEAD:
            return DeviceCheck(f"it does not answer: {_MEMORY}: {error.strerror}")
        if error.errno in _BUSY:
            return DeviceCheck(is_busy=True)
    if any(device.gfx in _CLEARED_BY_READS for device in gpu.devices):
        return DeviceCheck()
    return DeviceCheck(errors=_errors(directory + "/ras"))


def _errors(directory: str) -> dict[str, int]:
    """Return the counters that can be read now; a GPU without RAS has none."""
    counts = [
        _uncorrectable(f"{directory}/{name}")
        for name in amd_sysfs.names(directory)
        if name.endswith("_err_count")
    ]
    found = {}
    if counts and None not in counts:
        found[UNCORRECTABLE] = sum(count or 0 for count in counts)
    try:
        pages = amd_sysfs.text(directory + "/gpu_vram_bad_pages")
    except OSError:
        return found
    return {**found, BAD_PAGES: sum(bool(line.strip()) for line in pages.splitlines())}


def _uncorrectable(path: str) -> int | None:
    """Return the number in the line "ue: n", None if the file has none for now."""
    try:
        lines = amd_sysfs.text(path).splitlines()
    except OSError:
        return None
    numbers = [line.partition(":")[2].strip() for line in lines if line.startswith("ue:")]
    return int(numbers[0]) if numbers and amd_sysfs.is_number(numbers[0]) else None


def _missing_node(device: AmdDevice, root: str, dev: str) -> str:
    """Return which node the device has lost, "" if it has its nodes.

    Without a view of the host's /dev/dri, the driver's own list is decisive.
    """
    name = os.path.basename(device.render_path)
    if not os.path.lexists(f"{root}{amd_sysfs.DRM}/{name}"):
        return f"the driver no longer has its render node {name}"
    sees = os.path.isdir(dev + os.path.dirname(device.render_path))
    if sees and not os.path.exists(dev + device.render_path):
        return f"its device node {device.render_path} is missing"
    return ""
