# SPDX-License-Identifier: Apache-2.0
"""The driver's two ways to enforce memory limits of a cgroup, and whether guarantees are set.

The driver chooses when it is loaded. DMEM is the kernel's controller (Linux 6.14): limits nest, and
a cgroup's guarantee is reserved in all cgroups above it, where it remains when that cgroup is
removed. MISC is the driver's own account: of the cgroups above a process, only the nearest with a
limit applies. Sources: the kernel's admin-guide/cgroup-v2.rst; "MPS v3 Memory Partitioning" of
NVIDIA's documentation; src/nvidia/src/kernel/mem_mgr/memacct.c of NVIDIA's open kernel modules.

Hard limits that add up to no more than the card give each container its share without a guarantee.
So `limits.guarantee: auto` leaves guarantees out on DMEM.
"""

from __future__ import annotations

import os

from gpuhook.host.hot import settings
from gpuhook.request.memory_request import MemoryLimit

DMEM, MISC = "dmem", "misc"
_LIMIT = "dmem.max"
_REGIONS = "dmem.capacity"  # of the topmost cgroup alone: a line for each region of a device
_CONTROLLERS = "cgroup.controllers"
_PASSED_ON = "cgroup.subtree_control"
_OURS = "nvidia/"
NO_CONTROLLER = (
    (
        "the kernel's controller dmem, which enforces limits on this node, is not enabled for it: "
        "dmem is missing in cgroup.subtree_control of {above}"
    ),
    (
        "write +dmem into cgroup.subtree_control of each parent cgroup, from "
        "the root downwards; or use the driver's own accounting: options nvidia "
        "NVreg_RegistryDwords=RmMemacctMode=1 in /etc/modprobe.d, and reload the driver"
    ),
)


def backend_of(cgroup: str) -> str:
    """Return the backend for the cgroup with this directory: DMEM or MISC.

    The driver's regions show it once a GPU is in use. If they are not visible, as in a cgroup
    namespace, a kernel with the controller is DMEM: leaving a guarantee out does no harm.
    """
    top = _top(cgroup)
    regions = _text(os.path.join(top, _REGIONS))
    if regions is not None:
        return DMEM if any(line.startswith(_OURS) for line in regions.splitlines()) else MISC
    controllers = _text(os.path.join(top, _CONTROLLERS)) or ""
    return DMEM if DMEM in controllers.split() or _has_files(cgroup) else MISC


def to_limit(backend: str, own: list[str]) -> list[str]:
    """Return those of a container's cgroups `own`, upwards, for which a limit is set.

    On MISC only the highest: with their own limits, each of those below would have that much. On
    DMEM all of them: a process reads the limit of its innermost cgroup.
    """
    return own[-1:] if backend == MISC else own


def lacks_controller(cgroup: str) -> bool:
    """Return whether the backend is DMEM, and its controller is not enabled for the cgroup."""
    return backend_of(cgroup) == DMEM and not _has_files(cgroup)


def is_not_passed_on(top: str) -> bool:
    """Return whether the backend is DMEM, and no cgroup below the topmost, `top`, has its files.

    False if another cgroup is visible as the topmost, as in a container: then it is unknown.
    """
    regions = _text(os.path.join(top, _REGIONS))
    passed_on = _text(os.path.join(top, _PASSED_ON))
    if regions is None or passed_on is None or backend_of(top) != DMEM:
        return False
    return DMEM not in passed_on.split()


def _has_files(cgroup: str) -> bool:
    return os.path.exists(os.path.join(cgroup, _LIMIT))


def _top(cgroup: str) -> str:
    """Return the directory of the highest visible cgroup above."""
    while True:
        above = os.path.dirname(cgroup)
        if above == cgroup or not os.path.exists(os.path.join(above, _CONTROLLERS)):
            return cgroup
        cgroup = above


def _text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return None


ON_DMEM = (
    "the kernel's controller dmem enforces limits here, and would keep it in the parent "
    "cgroups after the container exits (limits.guarantee: auto)"
)
NEVER = "limits.guarantee: never"


def supported_limit(limit: MemoryLimit, policy: str, backend: str) -> tuple[MemoryLimit, str]:
    """Return the limit that is set, and why its guarantee is not set, "" if it is not.

    `policy` is the setting limits.guarantee, `backend` is DMEM or MISC.
    """
    if not limit.soft or policy == settings.ALWAYS:
        return limit, ""
    if policy == settings.NEVER:
        return without_guarantee(limit), NEVER
    return (without_guarantee(limit), ON_DMEM) if backend == DMEM else (limit, "")


def without_guarantee(limit: MemoryLimit) -> MemoryLimit:
    """Return the limit with its hard part alone."""
    return MemoryLimit(limit.device, limit.hard, 0, is_asked=limit.is_asked)
