# SPDX-License-Identifier: Apache-2.0
"""Whether the tests of memory limits can run on this machine, and why not, plainly."""

from __future__ import annotations

from gpuhook.kernel import cgroup
from gpuhook.vendors.nvidia import memory_limits

TOO_OLD = "this driver is too old: no nvmlDeviceSetMemoryLimits_v1"
CGROUP_V1 = "this machine has cgroup v1: the driver limits cgroups of version 2"


def reason_to_skip(library: str, version: str | None = None) -> str | None:
    """Return why limits cannot be set by the NVML at `library`; None where they can.

    `version` is that of the machine's cgroups, looked up where it is not given.
    """
    if not memory_limits.supported(library):
        return TOO_OLD
    return None if (version or cgroup.hierarchy()) == cgroup.V2 else CGROUP_V1
