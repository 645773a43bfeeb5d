# SPDX-License-Identifier: Apache-2.0
"""Whether this node can enforce limits of the memory of NVIDIA GPUs, and if not, why.

This needs no container. The driver must have the call, and limits apply to cgroups of version 2.
driver_backend.py finds out which of its ways the driver uses.
"""

from __future__ import annotations

from gpuhook.containers.warm.driver_limit import DMEM
from gpuhook.errors import GpuhookError, fault
from gpuhook.kernel import cgroup
from gpuhook.vendors.nvidia.hot.nvidia_memory import FIRST_BRANCH, driver_branch
from gpuhook.vendors.nvidia.warm import driver_backend, nvml_limits
from gpuhook.vendors.usage.limit_device import LimitSupport

_CGROUPS = "/sys/fs/cgroup"
_NO_DRIVER = "this node has no NVIDIA driver, or its library is not found"
_V1 = "this node has cgroup v1, but the driver only limits the memory of cgroup v2"
_BOOT = "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1"


def driver_support(library: str | None, cgroups: str = _CGROUPS) -> LimitSupport:
    """Return what the NVML at `library` and the cgroups of `cgroups` support.

    A container's view of /sys/fs/cgroup has the host's version, so the result applies to the node
    also if the caller runs in a pod.
    """
    if not library:
        remedy = "install the driver, or name its library"
        return LimitSupport(reason=_NO_DRIVER, remedy=remedy, is_present=False)
    obstacle = _of_cgroups() or _of_library(library)
    if obstacle:
        return obstacle
    if driver_backend.is_not_passed_on(cgroups):
        reason, remedy = driver_backend.NO_CONTROLLER
        return LimitSupport(DMEM, reason.format(above=cgroups), remedy)
    return LimitSupport(driver_backend.backend_of(cgroups))


def _of_cgroups() -> LimitSupport | None:
    version = cgroup.hierarchy()
    if version is None:
        return LimitSupport(reason=f"no cgroups are mounted at {_CGROUPS}", remedy=_BOOT)
    return None if version == cgroup.V2 else LimitSupport(reason=_V1, remedy=_BOOT)


def _of_library(library: str) -> LimitSupport | None:
    try:
        if supported(library):
            return None
    except GpuhookError as error:  # the driver is being removed: other checks report it
        return LimitSupport(reason=error.message, remedy=error.hint)
    return LimitSupport(
        reason=_too_old(library), remedy=f"update the driver to r{FIRST_BRANCH} or newer"
    )


def supported(library: str) -> bool:
    """Return whether the NVML library at this path has the calls. Raises GH1202.

    The file is read and not loaded: a long-lived process would keep a driver that is replaced.
    """
    try:
        with open(library, "rb") as file:
            text = file.read()
    except OSError as error:
        raise fault("GH1202", path=library, reason=error) from error
    return all(b"\0" + name.encode() + b"\0" in text for name in (nvml_limits.SET, nvml_limits.GET))


def _too_old(library: str) -> str:
    found = driver_branch(library)
    if found is None:
        return f"the driver has no memory limits: they were added in r{FIRST_BRANCH} (CUDA 13.4)"
    if found >= FIRST_BRANCH:
        return f"driver {found} has no memory limits, although they were added in r{FIRST_BRANCH}"
    return f"driver {found} is older than r{FIRST_BRANCH} (CUDA 13.4)"
