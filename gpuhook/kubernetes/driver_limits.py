# SPDX-License-Identifier: Apache-2.0
"""Whether this node's driver can hold containers to limits of memory."""

from __future__ import annotations

from gpuhook.errors import GpuhookError
from gpuhook.kernel import cgroup


def held(library: str | None) -> bool:
    """Return whether the NVML at `library` has the call, and containers cgroups of version 2.

    A container's view of /sys/fs/cgroup is of the host's version, so this is true of the node also
    where the plugin runs in a pod. Without a library nothing is held.
    """
    if library is None or cgroup.hierarchy() != cgroup.V2:
        return False
    from gpuhook.vendors.nvidia import memory_limits

    try:
        return memory_limits.supported(library)
    except GpuhookError:  # the driver is on its way out: who looks at the node tells it
        return False
