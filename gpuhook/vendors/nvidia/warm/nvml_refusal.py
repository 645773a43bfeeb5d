# SPDX-License-Identifier: Apache-2.0
"""Reasons why a driver refuses a memory limit: its few error codes have many meanings.

Loaded with nvml_limits. Source: nvml.h, nvmlReturn_enum.
"""

from __future__ import annotations

import os

from gpuhook.vendors.nvidia.warm import driver_backend

OTHERWISE = "run nvidia-smi on the host: if it also fails, dmesg | grep NVRM shows why"

_WORDS = {
    2: (
        (
            "an argument is wrong: a soft limit above the hard one, a limit above the "
            "card's memory, or a directory that is not a cgroup v2"
        ),
        (
            "compare the limits with the memory that nvidia-smi shows, and check that stat -fc %T "
            "of the directory prints cgroup2fs"
        ),
    ),
    3: (
        (
            "this GPU does not support memory limits here; MIG, vGPU guests and operating systems "
            "other than Linux may lack them"
        ),
        (
            "share the GPU without a driver's limit (memory: none, or the plugin's guard), or use "
            "another GPU"
        ),
    ),
    4: (
        "no permission: only root on the host may do it",
        "run as root outside of any user namespace; a rootless engine cannot set limits",
    ),
    6: (
        "it does not know the cgroup",
        "check that the directory is a cgroup v2 directory of this host and not of a container",
    ),
    7: (
        "the cgroup's path is too long",
        "give the container a shorter cgroup path or name",
    ),
    10: ("it did not answer in time", OTHERWISE),
    19: (
        "the cgroup's processes already use more than this limit",
        "stop processes that use the memory (gpuhook ps shows them), or set a higher limit",
    ),
    20: ("it has no memory left", OTHERWISE),
    23: (
        "the soft limits of all containers on this GPU would exceed the card's memory",
        (
            "reduce the soft limit of this or other containers (gpuhook limits show lists them), "
            "or set it to 0"
        ),
    ),
    25: (
        "it requires a different version of the call",
        (
            "use a gpuhook release that supports this driver, and report this with the driver's "
            "version"
        ),
    ),
}


def words(code: int, cgroup: str) -> tuple[str, str] | None:
    """Return the reason and the remedy of an nvmlReturn_t, None without any."""
    if code in (2, 6) and not os.path.isdir(cgroup):
        gone = (
            "the cgroup does not exist: its container has exited, or the path belongs to another "
            "mount"
        )
        return gone, "start the container again, or use the path where this host mounts cgroups"
    if code in (3, 6) and driver_backend.lacks_controller(cgroup):
        reason, remedy = driver_backend.NO_CONTROLLER
        return reason.format(above=os.path.dirname(cgroup)), remedy
    return _WORDS.get(code)
