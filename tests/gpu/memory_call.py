# SPDX-License-Identifier: Apache-2.0
"""Whether a real driver supports memory limits, and whether it enforces them."""

from __future__ import annotations

from gpuhook.kernel import cgroup
from gpuhook.vendors.nvidia.driver import driver_support

TOO_OLD = "this driver is too old: no nvmlDeviceSetMemoryLimits_v1"
OUT_OF_MEMORY = "2"  # CUDA_ERROR_OUT_OF_MEMORY
CGROUP_V1 = "this machine has cgroup v1: the driver limits cgroups of version 2"


def falls_short(backend: str, limit: int, held: int, status: str) -> str:
    """Return what is wrong with a limit that was set and read back, "" if it is enforced.

    `held` MiB were allocated when `status` ended the allocation, in a process without MPS.
    """
    if held <= limit and status == OUT_OF_MEMORY:
        return ""
    ended = "the card's end" if status == OUT_OF_MEMORY else f"CUDA's error {status}"
    return (
        f"FINDING: the driver took a limit of {limit} MiB and reads it back (backend {backend}), "
        f"and a process without MPS allocated {held} MiB until {ended}: the limit does not hold"
    )


def reason_to_skip(library: str, version: str | None = None) -> str | None:
    """Return why limits cannot be set by the NVML at `library`; None if they can.

    `version` is that of the machine's cgroups; by default it is detected.
    """
    if not driver_support.supported(library):
        return TOO_OLD
    return None if (version or cgroup.hierarchy()) == cgroup.V2 else CGROUP_V1
