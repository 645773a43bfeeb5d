# SPDX-License-Identifier: Apache-2.0
"""Whether this node can hold containers to limits of a GPU's memory, and if it cannot, why.

No container is needed to tell. The driver has to have the call, and limits are those of cgroups of
version 2. Which of its ways the driver has is memory_backend's to say.
"""

from __future__ import annotations

import os

from gpuhook.errors import GpuhookError, fault
from gpuhook.kernel import cgroup
from gpuhook.memory_limits.warm import memory_backend, nvml_limits

FIRST = 615  # the driver's branch of CUDA 13.4
_CGROUPS = "/sys/fs/cgroup"
_NO_DRIVER = "this node has no NVIDIA driver, or none whose library is found"
_V1 = "this node has cgroup v1, and the driver limits the memory of v2's cgroups only"
_BOOT = "boot with the kernel parameter systemd.unified_cgroup_hierarchy=1"


class Support:
    """Whether limits are held, by which backend ("" where none), and why not ("" where they are).

    `remedy` is what to do about it.
    """

    __slots__ = ("backend", "holds", "reason", "remedy")

    def __init__(self, backend: str = "", reason: str = "", remedy: str = "") -> None:
        self.backend = backend
        self.holds = not reason
        self.reason = reason
        self.remedy = remedy


def driver_support(library: str | None, cgroups: str = _CGROUPS) -> Support:
    """Return what the NVML at `library` and the cgroups of `cgroups` make possible.

    A container's view of /sys/fs/cgroup is of the host's version, so this is true of the node also
    where the caller runs in a pod.
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
    except GpuhookError as error:  # the driver is on its way out: who looks at the node tells it
        return Support(reason=error.message, remedy=error.hint)
    return Support(reason=_too_old(library), remedy=f"update the driver to r{FIRST} or newer")


def supported(library: str) -> bool:
    """Return whether the NVML library at this path has the calls. Raises GH1202.

    The file is read and not loaded: a process that lives on would keep a driver that is replaced.
    """
    try:
        with open(library, "rb") as file:
            text = file.read()
    except OSError as error:
        raise fault("GH1202", path=library, reason=error) from error
    return all(b"\0" + name.encode() + b"\0" in text for name in (nvml_limits.SET, nvml_limits.GET))


def branch(library: str) -> int | None:
    """Return the driver's branch by its library's name, None where that does not tell.

    >>> branch("/usr/lib/libnvidia-ml.so.580.65.06")
    580
    """
    first = os.path.realpath(library).rpartition(".so.")[2].partition(".")[0]
    # libnvidia-ml.so.1 alone, without what it links to, says nothing
    return int(first) if first.isdecimal() and int(first) > 1 else None


def _too_old(library: str) -> str:
    found = branch(library)
    if found is None:
        return f"the driver has no memory limits: they came with r{FIRST} (CUDA 13.4)"
    if found >= FIRST:
        return f"driver {found} has no memory limits, though they came with r{FIRST}"
    return f"driver {found} is older than r{FIRST} (CUDA 13.4)"
