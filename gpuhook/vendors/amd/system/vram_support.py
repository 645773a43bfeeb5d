# SPDX-License-Identifier: Apache-2.0
"""Whether this node can limit the memory of AMD GPUs, and if not, why.

The kernel must have the controller dmem, in cgroup v2, and amdgpu must register a region for each
GPU: dmem.capacity has both, whatever the version of the kernel is.
"""

from __future__ import annotations

import os

from gpuhook.containers.warm.driver_limit import DMEM
from gpuhook.kernel import cgroup, dmem
from gpuhook.vendors.amd.hot import amd_memory, amd_sysfs
from gpuhook.vendors.amd.inventory import inventory_worker
from gpuhook.vendors.usage.limit_device import LimitDevice, LimitSupport

_NO_DRIVER = "this node has no amdgpu driver"
_V2 = "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1"
_GUARD = "until then, the device plugin's guard can monitor the memory"


def limit_devices(host_root: str) -> list[LimitDevice]:
    """Return the GPUs and partitions of a node."""
    node = inventory_worker.read(host_root, host_root)
    return [
        LimitDevice(
            device.id,
            device.index,
            device.render_path,
            device.memory_bytes,
            names=(
                f"{gpu.index}:{device.partition}",
                *((gpu.uuid,) if gpu.uuid and not gpu.is_partitioned else ()),
            ),
            is_divided=gpu.is_partitioned,
        )
        for gpu, device in node.devices()
    ]


def limit_support(host_root: str, cgroups: str = "") -> LimitSupport:
    """Return what the kernel supports, for the GPUs below `host_root` and the cgroups there.

    In a container the host's root cgroup may be there only.
    """
    own = host_root.rstrip("/") + cgroup.MOUNT_POINT
    cgroups = cgroups or (own if os.path.isdir(own) else cgroup.MOUNT_POINT)
    if not amd_sysfs.is_ready(host_root):
        return LimitSupport(reason=_NO_DRIVER, remedy="modprobe amdgpu", is_present=False)
    version = cgroup.hierarchy()
    if version != cgroup.V2:
        reason = f"cgroup {version} is mounted" if version else "no cgroups are mounted"
        return LimitSupport(reason=f"{reason}, but the kernel needs cgroup v2", remedy=_V2)
    if not dmem.has_controller(cgroups):
        is_root = not os.path.exists(f"{cgroups}/cgroup.type")
        where = "" if is_root else f", or does not enable it for {cgroups} of this container"
        reason = f"the kernel has no cgroup controller dmem{where}"
        return LimitSupport(reason=reason, remedy=f"use Linux 6.15 or newer; {_GUARD}")
    return _of_gpus(amd_sysfs.gpu_addresses(host_root), cgroups) or LimitSupport(DMEM)


def _of_gpus(gpus: list[str], cgroups: str) -> LimitSupport | None:
    """Return why a GPU cannot be limited, None if all can be, as far as that is visible here."""
    divided = [gpu for gpu in gpus if amd_memory.is_partition(gpu)]
    regions = dmem.capacity(cgroups)
    lacking = [gpu for gpu in gpus if regions is not None and f"drm/{gpu}/vram" not in regions]
    if divided:
        reason = f"{', '.join(divided)}: the kernel limits whole GPUs, and not partitions"
        return LimitSupport(DMEM, reason, "the device plugin's guard can monitor partitions")
    if lacking:
        reason = f"amdgpu registers no memory of {', '.join(lacking)} with the controller dmem"
        return LimitSupport(DMEM, reason, f"use the amdgpu of Linux 6.15 or newer; {_GUARD}")
    if regions is not None and dmem.passes_on(cgroups) is False:
        reason = f"the controller dmem is not enabled: it is not in {cgroups}/{dmem.PASSED_ON}"
        return LimitSupport(DMEM, reason, dmem.ENABLE)
    return None
