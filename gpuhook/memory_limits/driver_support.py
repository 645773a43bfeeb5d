# SPDX-License-Identifier: Apache-2.0
"""Whether this node can enforce limits of GPU memory, and if not, why.

This needs no container. The driver must have the call, and limits apply to cgroups of version 2.
memory_backend.py finds out which of its ways the driver uses.
"""

from __future__ import annotations

from gpuhook.errors import GpuhookError, fault
from gpuhook.kernel import cgroup
from gpuhook.memory_limits.hot import container_limits
from gpuhook.memory_limits.hot.container_limits import FIRST_BRANCH
from gpuhook.memory_limits.warm import memory_backend, nvml_limits

_CGROUPS = "/sys/fs/cgroup"
_NO_DRIVER = "this node has no NVIDIA driver, or its library is not found"
_V1 = "this node has cgroup v1, but the driver only limits the memory of cgroup v2"
_BOOT = "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1"


class Support:
    """Whether limits are enforced, by which backend ("" for none), and the reason if not ("").

    `remedy` is what to do about it.
    """

    __slots__ = ("backend", "holds", "reason", "remedy")

    def __init__(self, backend: str = "", reason: str = "", remedy: str = "") -> None:
        self.backend = backend
        self.holds = not reason
        self.reason = reason
        self.remedy = remedy


def driver_support(library: str | None, cgroups: str = _CGROUPS) -> Support:
    """Return what the NVML at `library` and the cgroups of `cgroups` support.

    A container's view of /sys/fs/cgroup has the host's version, so the result applies to the node
    also if the caller runs in a pod.
    """
    if not library:
        return Support(reason=_NO_DRIVER, remedy="install the driver, or name its library")
    obstacle = _of_cgroups() or _of_library(library)
    if obstacle:
        return obstacle
    if memory_backend.is_not_passed_on(cgroups):
        reason, remedy = memory_backend.NO_CONTROLLER
        return Support(memory_backend.DMEM, reason.format(above=cgroups), remedy)
    return Support(memory_backend.backend_of(cgroups))


def _of_cgroups() -> Support | None:
    version = cgroup.hierarchy()
    if version is None:
        return Support(reason=f"no cgroups are mounted at {_CGROUPS}", remedy=_BOOT)
    return None if version == cgroup.V2 else Support(reason=_V1, remedy=_BOOT)


def _of_library(library: str) -> Support | None:
    try:
        if supported(library):
            return None
    except GpuhookError as error:  # the driver is being removed: other checks report it
        return Support(reason=error.message, remedy=error.hint)
    return Support(
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
    found = container_limits.driver_branch(library)
    if found is None:
        return f"the driver has no memory limits: they were added in r{FIRST_BRANCH} (CUDA 13.4)"
    if found >= FIRST_BRANCH:
        return f"driver {found} has no memory limits, although they were added in r{FIRST_BRANCH}"
    return f"driver {found} is older than r{FIRST_BRANCH} (CUDA 13.4)"
