# SPDX-License-Identifier: Apache-2.0
"""Device nodes of GPUs and MIG instances that do not exist any more, by /proc alone.

A container keeps its nodes: those of a removed GPU, or of a destroyed instance, open nothing, or
the next device with their number.
"""

from __future__ import annotations

import os
from functools import lru_cache

from gpuhook.vendors.nvidia.devices import driver_nodes
from gpuhook.vendors.nvidia.hot import mig_capabilities, vocabulary

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def of_paths(paths: Iterable[str], host_root: str) -> list[str]:
    """Return those of the device nodes `paths` whose GPU or instance does not exist any more.

    A node that /proc has no facts about is not returned: another kind, or no loaded driver.
    """
    gpus = driver_nodes.proc_gpus(host_root)
    minors = {gpu.minor for gpu in gpus}
    has_gpus = os.path.isdir(os.path.join(host_root, "proc/driver/nvidia/gpus"))
    is_complete = has_gpus and None not in minors
    known = {f"/dev/nvidia{minor}" for minor in minors}
    possible = possible_instances(mig_capabilities.proc_text(host_root, mig_capabilities.MINORS))
    found = []
    for path in paths:
        is_gone = vocabulary.is_whole_gpu(path) and is_complete and path not in known
        directory = possible.get(path)
        if is_gone or (directory and not os.path.isdir(host_root.rstrip("/") + directory)):
            found.append(path)
    return found


@lru_cache(maxsize=1)
def possible_instances(minors: str) -> dict[str, str]:
    """Return the nodes of all possible instances, and the directory that each one has if it exists.

    `minors` is the text of mig-minors, which lists thousands: the same for each container.
    """
    return {
        vocabulary.capability_node(minor): os.path.dirname(mig_capabilities.file(name))
        for name, minor in mig_capabilities.parse_minors(minors).items()
        if "/gi" in name
    }
