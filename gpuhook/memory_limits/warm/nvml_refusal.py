# SPDX-License-Identifier: Apache-2.0
"""Why a driver refuses a memory limit, in words: its error codes are few and mean many things.

Loaded with memory_limits. Source: nvml.h, nvmlReturn_enum.
"""

from __future__ import annotations

import os

from gpuhook.memory_limits.warm import memory_backend

OTHERWISE = "run nvidia-smi on the host: when that fails too, dmesg | grep NVRM tells why"

_WORDS = {
    2: (
        (
            "an argument is wrong: a soft limit above the hard one, a limit above what the card "
            "has, or a directory that is no cgroup of version 2"
        ),
        (
            "compare the limits with the memory that nvidia-smi shows, and see that stat -fc %T "
            "says cgroup2fs of the directory"
        ),
    ),
    3: (
        (
            "this GPU does not support memory limits here; MIG, vGPU guests and other operating "
            "systems than Linux may be without them"
        ),
        (
            "share the GPU without a driver's limit (memory: none, or the plugin's guard), or take "
            "another GPU"
        ),
    ),
    4: (
        "no permission: it is for root of the host alone",
        "run as root outside of any user namespace; an engine without root cannot set limits",
    ),
    6: (
        "it does not know the cgroup",
        "see that the directory is a cgroup of version 2 of this host and not of a container",
    ),
    7: (
        "the cgroup's path is longer than it takes",
        "give the container a shorter cgroup path or name",
    ),
    10: ("it did not answer in time", OTHERWISE),
    19: (
        "the cgroup's processes hold more than that already, and no limit is set below it",
        "end processes that hold the memory (gpuhook ps shows them), or set a higher limit",
    ),
    20: ("it has no memory left for it", OTHERWISE),
    23: (
        "the soft limits of all containers on this GPU would be more than the card has",
        (
            "give this one or others less (gpuhook limits show tells what they have), or set the "
            "soft limit to 0"
        ),
    ),
    25: (
        "it takes another version of the call",
        "use a gpuhook that is as new as the driver, and report this with the driver's version",
    ),
}


def words(code: int, cgroup: str) -> tuple[str, str] | None:
    """Return the reason and the remedy for an nvmlReturn_t, None where there is nothing to add."""
    if code in (2, 6) and not os.path.isdir(cgroup):
        gone = "the cgroup is not there: its container has ended, or the path is another mount's"
        return gone, "start the container again, or give the path as this host mounts cgroups"
    if code in (3, 6) and memory_backend.lacks_controller(cgroup):
        reason, remedy = memory_backend.NO_CONTROLLER
        return reason.format(above=os.path.dirname(cgroup)), remedy
    return _WORDS.get(code)
