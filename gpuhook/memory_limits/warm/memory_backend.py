# SPDX-License-Identifier: Apache-2.0
"""The two ways to enforce memory limits of a cgroup, and whether guarantees are set.

DMEM is the kernel's controller (Linux 6.14): limits nest, and a cgroup's guarantee is reserved in
all cgroups above it, where it remains when that cgroup is removed. MISC is a driver's own account:
of the cgroups above a process, only the nearest with a limit applies. Source: the kernel's
admin-guide/cgroup-v2.rst.

Hard limits that add up to no more than the card give each container its share without a guarantee.
So `limits.guarantee: auto` leaves guarantees out on DMEM.
"""

from __future__ import annotations

from gpuhook.containers.warm.driver_limit import DMEM, MISC
from gpuhook.host.hot import settings
from gpuhook.request.memory_request import MemoryLimit

ON_DMEM = (
    "the kernel's controller dmem enforces limits here, and would keep it in the parent "
    "cgroups after the container exits (limits.guarantee: auto)"
)
NEVER = "limits.guarantee: never"


def to_limit(backend: str, own: list[str]) -> list[str]:
    """Return those of a container's cgroups `own`, upwards, for which a limit is set.

    On MISC only the highest: with their own limits, each of those below would have that much. On
    DMEM all of them: a process reads the limit of its innermost cgroup.
    """
    return own[-1:] if backend == MISC else own


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
