# SPDX-License-Identifier: Apache-2.0
"""Whether a container's guarantee is given to the driver: the soft part of its memory limit.

Where the kernel's controller holds limits, the driver reserves a guarantee in all cgroups above the
container's, and it stays there when a container ends. Hard limits that add up to no more than the
card leave each its share without it. So `limits.guarantee: auto` leaves it out there.
"""

from __future__ import annotations

from gpuhook.host.hot import settings
from gpuhook.memory_limits.warm import memory_backend
from gpuhook.request.memory_request import MemoryLimit

ON_DMEM = (
    "the kernel's controller dmem holds limits here, and would keep it in the cgroups above after "
    "the container's end (limits.guarantee: auto)"
)
NEVER = "limits.guarantee: never"


def supported_limit(limit: MemoryLimit, policy: str, backend: str) -> tuple[MemoryLimit, str]:
    """Return the limit that is set, and why its guarantee is left out, "" where it is not.

    `policy` is the setting limits.guarantee, `backend` one of memory_backend's.
    """
    if not limit.soft or policy == settings.ALWAYS:
        return limit, ""
    if policy == settings.NEVER:
        return _without(limit), NEVER
    return (_without(limit), ON_DMEM) if backend == memory_backend.DMEM else (limit, "")


def _without(limit: MemoryLimit) -> MemoryLimit:
    return MemoryLimit(limit.device, limit.hard, 0, is_asked=limit.is_asked)
